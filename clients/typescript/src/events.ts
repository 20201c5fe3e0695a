/** A committed change; `data` is the whole event as the server sent it. */
export interface KBEvent {
  type: string;
  id: string;
  timestamp: number;
  scope: string | null;
  data: Record<string, unknown>;
}

/** Yield the events of a stream, each with the last id received. */
export async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<{ id: string; event: KBEvent | undefined }> {
  let id = "";
  for await (const line of linesOf(body)) {
    if (line.startsWith("id:")) id = line.slice(3).trim();
    let event: KBEvent | undefined;
    if (line.startsWith("data:")) {
      const data = JSON.parse(line.slice(5)) as Record<string, unknown>;
      id = (data["eventId"] as string | undefined) ?? id;
      event = {
        type: data["type"] as string,
        id,
        timestamp: (data["timestamp"] as number | undefined) ?? 0,
        scope: (data["scope"] as string | null | undefined) ?? null,
        data,
      };
    }
    yield { id, event };
  }
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
