/** A committed change; `data` is the whole event as the server sent it. */
export interface KBEvent {
  type: string;
  id: string;
  timestamp: number;
  scope: string | null;
  data: Record<string, unknown>;
}

/** A complete message of a stream: its position and its event; a message without data only reports a position. */
export interface Message {
  id: string;
  event: KBEvent | undefined;
}

/** Yield the messages of a stream. A message ends with an empty line: one that is cut before it is not yielded. */
export async function* messagesOf(body: ReadableStream<Uint8Array>): AsyncGenerator<Message> {
  let id = "";
  let data: string[] = [];
  for await (const line of linesOf(body)) {
    if (line.startsWith("id:")) id = line.slice(3).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5));
    else if (line === "") {
      yield { id, event: data.length ? eventOf(data.join("\n"), id) : undefined };
      data = [];
    }
  }
}

function eventOf(text: string, id: string): KBEvent {
  const data = JSON.parse(text) as Record<string, unknown>;
  return {
    type: data["type"] as string,
    id: (data["eventId"] as string | undefined) ?? id,
    timestamp: (data["timestamp"] as number | undefined) ?? 0,
    scope: (data["scope"] as string | null | undefined) ?? null,
    data,
  };
}

async function* linesOf(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split(/\r?\n/);
    rest = lines.pop() ?? "";
    yield* lines;
  }
}
