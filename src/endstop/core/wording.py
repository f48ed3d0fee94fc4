"""What stall rules say to the model, in the result of the call they speak of."""

from __future__ import annotations

REFUSED = {
    "repeat": "Refused: this is call {n} with the same arguments, and the result did not change. It was not run. Use what you "
    "know, do something different, or report what blocks you.",
    "failing": "Refused: this is call {n} with the same arguments, and it keeps failing. It was not run. Find out why it fails, "
    "change something first, or report what blocks you.",
    "same failure": "Refused: {n} different calls of this tool came to the same failure. It was not run. Another variant will "
    "not help; find the cause or report what blocks you.",
    "same answer": "Refused: {n} different calls of this tool brought the same answer. It was not run. Take the answer as it is.",
}
NOTICED = {
    "repeat": "[endstop] Same call, same result, {n} times{period}. At {refuse} it will be refused.",
    "failing": "[endstop] This call failed {n} times. Change something before you try it again; at {refuse} it will be refused.",
    "same failure": "[endstop] {n} different calls of this tool came to the same failure. Look for the cause.",
    "same answer": "[endstop] {n} different calls of this tool brought the same answer. It will not change by asking again.",
    "poller": "[endstop] Nothing changed in {n} polls. Use wait instead of asking again.",
    "denied": "[endstop] This was not allowed. It will not be asked again in this goal; find another way or report_blocked.",
    "unknown tool": "[endstop] That tool does not exist (call {n} in a row). Use one of the tools you were given.",
    "malformed": "[endstop] The arguments were not valid (call {n} in a row). Send one JSON object that fits the schema.",
    "many": "[endstop] This call gave this result {n} times in this goal. Is there nothing else left to try?",
    "oscillation": "[endstop] The workspace went back to an earlier state for the {n}th time, and the gate is still red. Neither "
    "version is right: look for a third.",
    "degenerate text": "[endstop] Your answer said the same sentence over and over; it was cut.",
    "no progress": "[endstop] {n} checks in a row with the same result: nothing changed in between. Do the missing part first.",
}
