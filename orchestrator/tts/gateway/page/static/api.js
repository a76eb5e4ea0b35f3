// Requests to the gateway that this page is from, and streams of its answers.
let key = ""; // in this page's memory and nowhere else

export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export function useKey(typed) {
  key = typed;
}

export const hasKey = () => key !== "";

export async function request(path, body, signal) {
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  if (body) headers["content-type"] = "application/json";
  const answer = await fetch(path, {
    method: body ? "POST" : "GET", body: body && JSON.stringify(body), headers, signal,
    credentials: "omit", cache: "no-store",
  });
  if (answer.ok) return answer;
  const failure = await answer.json().catch(() => null);
  throw new Refused(failure?.error?.message ?? `The gateway answered ${answer.status}.`, answer.status);
}

export async function json(path, body, signal) {
  return (await request(path, body, signal)).json();
}

// The chunks of a stream of events, as they come.
export async function* chunks(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ") || event === "data: [DONE]") continue;
      const chunk = JSON.parse(event.slice(6));
      if (chunk.error) throw new Refused(chunk.error.message);
      yield chunk;
    }
  }
}

export const messageOf = (error) => (error instanceof Refused ? error.message : `The gateway does not answer: ${error.message}`);
