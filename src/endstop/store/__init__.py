"""What is kept: tables, the journal, blobs."""
