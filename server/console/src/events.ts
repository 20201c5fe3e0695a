// Server-sent events from the body of a response: an EventSource cannot send the key.
// https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream

export interface ServerEvent {
  /** Id of this event or, if it has none, of the last one that had. */
  id: string;
  type: string;
  data: string;
}

/** A parser that takes the text in pieces of any length. */
export class EventParser {
  /** The last id that came, also without an event: where a later request goes on. */
  lastId = "";
  private rest = "";
  private type = "";
  private data: string[] = [];

  /** Return the events that are complete with this piece of text. */
  push(text: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    const pending = this.rest + text;
    // A carriage return at the end may be half of a line end.
    const end = pending.endsWith("\r") ? pending.length - 1 : pending.length;
    const lines = pending.slice(0, end).split(/\r\n|\n|\r/);
    this.rest = (lines.pop() ?? "") + pending.slice(end);
    for (const line of lines) {
      if (line !== "") this.field(line);
      else {
        if (this.data.length > 0) events.push({ id: this.lastId, type: this.type === "" ? "message" : this.type, data: this.data.join("\n") });
        this.type = "";
        this.data = [];
      }
    }
    return events;
  }

  private field(line: string): void {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.type = value;
    else if (name === "data") this.data.push(value);
    else if (name === "id" && !value.includes("\0")) this.lastId = value;
  }
}

/** Call `onEvents` with the events of a response as they come, until its stream ends or is aborted. */
export async function readEvents(body: ReadableStream<Uint8Array>, parser: EventParser, onEvents: (events: ServerEvent[]) => void): Promise<void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = parser.push(decoder.decode(value, { stream: true }));
    if (events.length > 0) onEvents(events);
  }
}
