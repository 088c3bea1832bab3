import { describe, expect, test } from "vitest";
import type { StreamMessage } from "../../../src/dashboard/model/event-stream-parser.ts";
import { chooseRetryMs, EventStreamParser } from "../../../src/dashboard/model/event-stream-parser.ts";

/** @param size the length of each chunk in bytes */
function parse(text: string, size = Number.MAX_SAFE_INTEGER): StreamMessage[] {
  const parser = new EventStreamParser();
  const bytes = new TextEncoder().encode(text);
  const messages: StreamMessage[] = [];
  for (let start = 0; start < bytes.length; start += size) {
    messages.push(...parser.push(bytes.subarray(start, start + size)));
  }
  return messages;
}

describe("messages", () => {
  test("have a name, data and the newest id", () => {
    expect(parse('event: start\ndata: {"run":"x"}\n\nid: 7\nevent: events\ndata: []\n\ndata: b\n\n')).toEqual([
      { id: "", event: "start", data: '{"run":"x"}' },
      { id: "7", event: "events", data: "[]" },
      { id: "7", event: "message", data: "b" },
    ]);
  });

  test("several lines of data are one text, and one space after the colon is no part of it", () => {
    expect(parse("data:a\ndata:  b\ndata\ndata: c:d\n\n").map(({ data }) => data)).toEqual(["a\n b\n\nc:d"]);
  });

  test("comments, unknown fields and messages without data are nothing", () => {
    expect(parse(": open\n\nretry: 10\nother: x\nevent: lost\n\nid: 3\n\n: beat\ndata: a\n\n")).toEqual([
      { id: "3", event: "message", data: "a" },
    ]);
  });

  test("an id with a NUL is ignored", () => {
    expect(parse("id: 1\nid: 2\0\ndata: a\n\n")[0]?.id).toBe("1");
  });

  test("the last message counts only when it has ended", () => {
    expect(parse("data: a\n\ndata: b\n")).toHaveLength(1);
  });
});

describe("chunks", () => {
  const lines = ["\ufeffid: 1", "event: events", "data: مفتاح 🔒", ": beat", "data: é", "", "data: 2", "", ""];

  test.each(["\n", "\r\n", "\r"])("end anywhere, with lines that end with %j", (end) => {
    const text = lines.join(end);
    const expected = [
      { id: "1", event: "events", data: "مفتاح 🔒\né" },
      { id: "1", event: "message", data: "2" },
    ];
    for (let size = 1; size < 40; size++) expect(parse(text, size), `chunks of ${size}`).toEqual(expected);
  });

  test("an empty chunk changes nothing, also between the two characters of an end of a line", () => {
    const parser = new EventStreamParser();
    const push = (text: string) => parser.push(new TextEncoder().encode(text));
    expect([...push("data: a\r"), ...push(""), ...push("\ndata: b\r\n\r"), ...push("\n")]).toEqual([
      { id: "", event: "message", data: "a\nb" },
    ]);
  });
});

test("attempts come after 1 s, and at last after up to 10 s", () => {
  expect([chooseRetryMs(1, 0), chooseRetryMs(1, 1)]).toEqual([1_000, 1_000]);
  expect(chooseRetryMs(2, 1)).toBe(2_000);
  expect([chooseRetryMs(60, 0), chooseRetryMs(60, 1)]).toEqual([5_500, 10_000]);
});
