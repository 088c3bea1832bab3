import { expect, test } from "vitest";
import type { HistoryEvent } from "../../../../src/torture/history.ts";
import { between, COMMAND, createReports } from "./reports.ts";
import {
  doubleGrant,
  goodHistory,
  HEADER,
  sampleEnd,
  sampleHold,
  samplePause,
  sampleWorkers,
} from "./sample-history.ts";

test("a good run: verdict, sentence, command, versions, and the fault that struck most", () => {
  const { html, summary } = createReports(goodHistory());
  expect(summary.verdict).toBe("ok");
  expect(html).toContain('<span class="verdict ok">OK</span>');
  expect(html).toContain(summary.sentence);
  expect(html).toContain(`<code>${COMMAND}</code>`);
  for (const text of ["1.2.3", "v20", "6.1", "Redis 7.0.15"]) expect(html).toContain(`<dd>${text}</dd>`);
  expect(html).toContain("The fault that struck most operations: pause");
  expect(html).toContain("not tested: latency");
  expect(html).not.toContain("What to do:");
});

test("holders are bars with their tokens, beside the fault that struck their worker", () => {
  const picture = between(createReports(goodHistory()).html, "The fault that struck most", "<h2>Invariants");
  expect(picture).toContain("pause: worker 0");
  expect(picture).toMatch(/<rect class="struck"/);
  expect(picture).toMatch(/token 1000001, held for 50 ms.*?<rect class="held"/);
  expect(picture).toContain(">…0001</text>");
  expect(picture).not.toContain('class="concerned"');
});

test("a violation: both operations, the active fault, the events around, advice, and red bars", () => {
  const { html, summary } = createReports(doubleGrant());
  expect(summary.verdict).toBe("violated");
  const index = summary.violations.findIndex(({ invariant }) => invariant === "exclusion");
  const section = between(html, `id="violation-${index + 1}"`, "</section>");
  expect(section).toContain("exclusion of a, at 6.200 s");
  expect(section).toContain("two holders had it at once, for 100 ms");
  expect(section).toContain("What to do:");
  for (const text of ["worker 0, process 4000", "worker 1, process 4001", "a: 2000001", "a: 2000002"])
    expect(section).toContain(text);
  expect(section).toContain("pause of worker 0, since 6.100 s, active");
  expect(section.match(/<g class="concerned">/g)?.length).toBeGreaterThanOrEqual(2);
  expect(section).toContain('<line class="mark" x1="50%"');
});

test("the events around a violation: ten before, ten from it on, in the order of time", () => {
  const { html, summary } = createReports(doubleGrant());
  const index = summary.violations.findIndex(({ invariant }) => invariant === "exclusion");
  const section = between(html, `id="violation-${index + 1}"`, "</section>");
  const events = between(section, "The events around violation", "</table>");
  const times = [...events.matchAll(/<th scope="row">([\d.]+) s<\/th>/g)].map(([, time]) => Number(time));
  expect(times).toEqual(times.toSorted((a, b) => a - b));
  expect(times.filter((time) => time < 6.2).length).toBe(10);
  expect(times.filter((time) => time >= 6.2).length).toBeGreaterThan(5);
  expect(events).toContain("fault pause strikes worker 0");
  expect(events).toMatch(/<tr class="concerned">.*is granted it: token 2000002 of a/);
});

test("the page needs nothing from elsewhere, and runs nothing", () => {
  for (const { html } of [createReports(goodHistory()), createReports(doubleGrant())]) {
    expect(html).not.toMatch(/<script|\son\w+=|javascript:|<link|<img|<iframe|@import|url\(/i);
    expect(html.match(/https?:/g)).toBeNull();
    expect(html).toContain("default-src 'none'");
  }
});

test("it can be read by assistive programs, in both colour schemes", () => {
  const { html } = createReports(doubleGrant());
  expect(html).toContain('<html lang="en">');
  expect(html).toContain("<title>Holdfast 1.2.3 on Redis 7.0.15: violated</title>");
  expect(html).toContain("prefers-color-scheme: dark");
  expect(html.match(/<table>/g)?.length).toBe(html.match(/<caption>/g)?.length);
  expect(html.match(/role="img" aria-label="/g)?.length).toBe(html.match(/<figure>/g)?.length);
  const ids = [...html.matchAll(/role="region" aria-label="([^"]*)"/g)].map(([, label]) => label);
  expect(ids).toEqual([...new Set(ids)]);
});

test("texts from outside are escaped everywhere, and control characters are visible", () => {
  const key = `<script>alert("k")</script>\u202e\u0007`;
  const unknown: HistoryEvent[] = [
    { event: "invoke", at: 6e6, worker: 1, op: 500, kind: "mutex", keys: [key], permits: 1, limit: 1, waitMs: 0 },
    { event: "unknown", at: 6_190_000, worker: 1, op: 500, reason: `Error: </td><img src=x onerror="x">\u0000\ud800` },
    { event: "unsupported", at: 6e6, worker: 1, kind: "leader", reason: "<b>never</b>" },
  ];
  const events = doubleGrant(key);
  events.splice(-3, 0, ...unknown);
  const { html, junit, summary } = createReports(events);
  expect(summary.violations[0]?.key).toBe(key);
  for (const text of [html, junit]) {
    expect(text).not.toMatch(/<script|<img|<b>never/);
    expect(text.replaceAll("\n", "")).not.toMatch(/[\p{Cc}\p{Cf}\p{Cs}]/u);
    expect(text).toContain("&lt;script&gt;alert(&quot;k&quot;)&lt;/script&gt;\\u{202e}\\u{7}");
  }
  expect(html).toContain("&lt;/td&gt;&lt;img src=x onerror=&quot;x&quot;&gt;\\u{0}\\u{d800}");
});

test("no report contains the password of a url or the id of a claim", () => {
  const id = "abcdefghijklmnopqrstuvwx23";
  const reason = `StoreError: redis://user:hunter2@host/0 refused the claim ${id}`;
  const events = doubleGrant();
  events.splice(
    -3,
    0,
    { event: "invoke", at: 6e6, worker: 1, op: 500, kind: "mutex", keys: ["a"], permits: 1, limit: 1, waitMs: 0 },
    { event: "unknown", at: 6_190_000, worker: 1, op: 500, reason },
    { event: "worker", at: 6_300_000, worker: 1, pid: 4_001, phase: "ended", reason },
    { event: "unsupported", at: 6e6, worker: 1, kind: "leader", reason },
  );
  const { text } = createReports(events);
  expect(text).toContain("StoreError: redis://host/0 refused the claim (claim id)");
  expect(text).not.toContain("hunter2");
  expect(text).not.toContain(id);
});

test("a run that shows nothing says why", () => {
  const { html, summary } = createReports([HEADER, ...sampleWorkers(), ...sampleEnd()]);
  expect(summary.verdict).toBe("unknown");
  expect(html).toContain("no fault was injected");
  expect(html).toContain("None was injected.");
});

test("a history that breaks off in the middle of a fault has a page", () => {
  const [begin] = samplePause(9, 0, 3_000, 4_000) as [HistoryEvent];
  const { html } = createReports([...goodHistory().slice(0, -3), begin]);
  expect(html).toContain("the run was cut short");
  expect(html).not.toMatch(/NaN|Infinity|undefined|null%/);
});

test("the size of the page does not grow with the run", () => {
  const small = createReports(goodHistory("a", 1_000)).html.length;
  const large = createReports(goodHistory("a", 4_000)).html.length;
  expect(large).toBeLessThan(1.5 * small);
  expect(large).toBeLessThan(400_000);
});

test("what must be changed in the command is said", () => {
  expect(createReports(goodHistory(), "The url is shown without user and password.").html).toContain(
    "<p>The url is shown without user and password.</p>",
  );
});

/** Holds of 1 ms every 10 ms on some keys by both workers. */
function briefHolds(keys: number, seconds: number): HistoryEvent[] {
  const events: HistoryEvent[] = [HEADER, ...sampleWorkers()];
  let op = 0;
  for (let ms = 100; ms < seconds * 1_000; ms += 20)
    for (let key = 0; key < keys; key++)
      for (const worker of [0, 1]) {
        const from = ms + 10 * worker;
        events.push(...sampleHold({ worker, op: op++, key: `k${key}`, token: String(op), from, to: from + 1 }));
      }
  return [...events, ...samplePause(1, 0, 500, 600), ...sampleEnd(seconds * 1_000)];
}

test("more holds than can be told apart are merged in the picture of the run, and left out of that of a fault", () => {
  const { html } = createReports(briefHolds(10, 20));
  const overview = between(html, "The entire run", "The fault that struck most");
  expect(overview.match(/M\d+ /g)?.length).toBeLessThan(5_100);
  expect(overview).toMatch(/Holds with less than [\d.]+ ms between them are drawn as one/);
  const picture = between(html, "The fault that struck most", "<h2>Invariants");
  expect(picture).toMatch(/<p>\d+ ms before and after the fault pause/);
  expect(picture.match(/<rect class="held"/g)?.length).toBeLessThan(601);
});
