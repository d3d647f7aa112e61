/* Page "Compare": what two outputs are to a program that reads tool calls or JSON (study/judge/tool_calls.py). */

/** @type {Record<string, string>} A sentence per verdict; none where neither output holds a call or JSON. */
export const CALLS = {
  identical: "To a program: the same text, with a tool call or JSON in it.",
  "same call": "To a program the same: other bytes, and the same tool call or JSON is read in both.",
  "other call": "To a program another one: the tool, its arguments or a value of the JSON differ.",
  "broken call": "To a program another one: a tool call or JSON can be read in one of them alone.",
};
