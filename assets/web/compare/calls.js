/* Page "Compare": what two outputs are to a program that reads tool calls or JSON (study/judge/tool_calls.py). */

/** @type {Record<string, string>} A sentence per verdict; none where neither output holds a call or JSON. */
export const CALLS = {
  identical: "Same for a program: the text is the same, with a tool call or JSON in it.",
  "same call": "Same for a program: the bytes differ, the tool call or JSON in them does not.",
  "other call": "Different for a program: the tool, its arguments or a value of the JSON differ.",
  "broken call": "Different for a program: only one of the two holds a tool call or JSON that can be read.",
};
