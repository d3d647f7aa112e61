/* Asking the server: JSON in, JSON out, its own sentence where something is wrong. */

/** What a route answers; throws an Error with the server's sentence and the ``status``. */
export async function getJson(url, asked) {
  let answer;
  try {
    answer = await (asked || fetch(url));
  } catch {
    throw new Error("The server does not answer: is it still running?");
  }
  let payload = null;
  try {
    payload = await answer.json();
  } catch {
    payload = null;
  }
  if (!answer.ok || payload === null)
    throw Object.assign(new Error(payload?.error || `The server answered with an error (${answer.status}).`), {
      status: answer.status,
    });
  return payload;
}

export const postJson = (url, asked) =>
  getJson(
    url,
    fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(asked) }),
  );
