import { describe, expect, test } from "vitest";
import type { HistoryEvent } from "../../../src/torture/history.ts";
import { parseHistory } from "../../../src/torture/history.ts";
import { readOperations } from "../../../src/torture/operations.ts";
import { writeHistory } from "../../support/torture-model.ts";

const events = writeHistory(1);
const text = events.map((event) => `${JSON.stringify(event)}\n`).join("");
const header = `${JSON.stringify(events[0])}\n`;
const parse = (history: string): HistoryEvent[] => [...parseHistory([history])];

test("what was written is read", () => {
  expect(parse(text)).toEqual(events);
  expect(parse(`${header}\n\n`)).toHaveLength(1);
});

test("a last line without its end is left out", () => {
  expect(parse(text.slice(0, -5))).toEqual(events.slice(0, -1));
  expect(parse(text.slice(0, -1))).toEqual(events.slice(0, -1));
});

describe("a damaged file is a TypeError that names the line", () => {
  test.for([
    ["nothing", "", "the history is empty"],
    ["half of the first line", header.slice(0, 20), "the history is empty"],
    ["no header", text.slice(header.length), "the history must have format 1"],
    ["another format", header.replace('"format":1', '"format":2'), "the history must have format 1"],
    ["null", "null\n", "the history must have format 1"],
    ["no JSON", `${header}{"event":"asked",\n`, "line 2 of the history is no JSON"],
    ["an array", `${header}[]\n`, "line 2 of the history is no event"],
    ["null later", `${header}null\n`, "line 2 of the history is no event"],
    ["an unknown event", `${header}{"event":"told","at":1}\n`, "line 2 of the history is no event"],
    ["the name of a method", `${header}{"event":"toString","at":1}\n`, "line 2 of the history is no event"],
    ["no time", `${header}{"event":"healed"}\n`, 'line 2 of the history: "at" of "healed" is not as it must be'],
    [
      "a token that is no number",
      `${header}{"event":"granted","at":1,"worker":0,"op":0,"tokens":{"a":"x"}}\n`,
      'line 2 of the history: "tokens" of "granted" is not as it must be',
    ],
    [
      "no keys",
      `${header}{"event":"invoke","at":1,"worker":0,"op":0,"kind":"mutex","keys":[],"permits":1,"limit":1,"waitMs":0}\n`,
      'line 2 of the history: "keys" of "invoke" is not as it must be',
    ],
  ] as const)("%s", ([, history, message]) => {
    expect(() => parse(history)).toThrow(new TypeError(message));
  });

  test("any byte may be missing or changed", () => {
    for (let index = header.length; index < Math.min(text.length, 5_000); index += 7) {
      for (const damaged of [
        text.slice(0, index) + text.slice(index + 1),
        `${text.slice(0, index)}9${text.slice(index + 1)}`,
      ]) {
        try {
          readOperations(parseHistory([damaged.slice(0, index + 400)]));
        } catch (error) {
          expect(error).toBeInstanceOf(TypeError);
        }
      }
    }
  });
});

test("its text may come in parts of any length", () => {
  for (const length of [1, 7, 1_000]) {
    const parts = text.match(new RegExp(`[^]{1,${length}}`, "g")) as string[];
    expect([...parseHistory(parts)]).toEqual(events);
  }
});

describe("a history that cannot be", () => {
  const invoke: HistoryEvent = {
    ...{ event: "invoke", at: 1, worker: 0, op: 0, kind: "mutex", keys: ["a"], permits: 1, limit: 1, waitMs: 0 },
  };

  test("without a header", () => {
    expect(() => readOperations([])).toThrow(new TypeError('the history has no "run"'));
  });

  test("with an event of an operation that was never invoked", () => {
    expect(() => readOperations([events[0] as HistoryEvent, { event: "releasing", at: 1, worker: 0, op: 0 }])).toThrow(
      new TypeError('the history has no "invoke" of operation 0/0'),
    );
  });

  test("with an operation that was invoked twice", () => {
    expect(() => readOperations([events[0] as HistoryEvent, invoke, invoke])).toThrow(
      new TypeError('the history has two "invoke" of operation 0/0'),
    );
  });
});
