import { expect, test } from "vitest";

import { EventParser, readEvents, type ServerEvent } from "./events";

const TEXT = 'retry: 3000\n: a comment\nid: a.1\n\nevent: fact_asserted\nid: a.2\ndata: {"type":\ndata:"x"}\n\ndata\n\nevent: nothing\n\ndata: half';

test("events with ids, several lines of data, comments and no data", () => {
  const parser = new EventParser();
  expect(parser.push(TEXT)).toEqual([
    { id: "a.2", type: "fact_asserted", data: '{"type":\n"x"}' },
    { id: "a.2", type: "message", data: "" },
  ]);
  expect(parser.push("\n\n")).toEqual([{ id: "a.2", type: "message", data: "half" }]);
});

test.each(["\n", "\r\n", "\r"])("pieces of any length, lines that end in %j", (lineEnd) => {
  const text = TEXT.replaceAll("\n", lineEnd);
  for (const length of [1, 2, 3, 7]) {
    const parser = new EventParser();
    const events: ServerEvent[] = [];
    for (let start = 0; start < text.length; start += length) events.push(...parser.push(text.slice(start, start + length)));
    expect(events).toEqual(new EventParser().push(TEXT));
  }
});

test("an id without an event is where to go on", () => {
  const parser = new EventParser();
  expect(parser.push("id: a.1\n\n")).toEqual([]);
  expect(parser.lastId).toBe("a.1");
});

test("a response whose pieces split a letter", async () => {
  const bytes = new TextEncoder().encode("data: süß\n\n");
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const byte of bytes) controller.enqueue(new Uint8Array([byte]));
      controller.close();
    },
  });
  const events: ServerEvent[] = [];
  await readEvents(body, new EventParser(), (more) => events.push(...more));
  expect(events.map(({ data }) => data)).toEqual(["süß"]);
});
