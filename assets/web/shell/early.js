/* Asks for the run before any other module is there, so that it is drawn before Gradio's scripts begin their work. */

export const FIRST = ""; // the server knows which run is the first
const id = new URLSearchParams(location.search).get("trace") || FIRST;

/** The run asked for, and the server's answer to come. */
export const early = { id, answer: fetch(id === FIRST ? "api/first" : `api/traces/${encodeURIComponent(id)}`) };
early.answer.catch(() => {}); // told when it is opened
