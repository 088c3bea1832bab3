/** docs/benchmarks.md, from docs/results.md: one table of what a lock costs, and what others do better. */

import type { BenchCase } from "../harness/bench-case.ts";
import { roundFigure } from "../harness/report.ts";
import { kindOf, labelOf } from "./implementations.ts";
import type { CaseResult, Results } from "./results.ts";
import { parseFigure } from "./results.ts";

interface Store {
  readonly name: string;
  /** The names of the cases; a store that lacks one has not been measured so. */
  readonly free: string;
  readonly contended?: string;
  readonly handOff?: string;
  readonly held?: string;
  /** How many locks that case holds. */
  readonly heldCount?: string;
}

const STORES: readonly Store[] = [
  { name: "In process (`memory:`)", free: "in-process", contended: "in-process-64" },
  {
    name: "Holdfast server",
    free: "socket",
    contended: "server-processes",
    handOff: "hand-off",
    held: "held",
    heldCount: "100,000",
  },
  {
    name: "Redis",
    free: "redis-alone",
    contended: "redis-processes",
    handOff: "redis-hand-off",
    held: "redis-held",
    heldCount: "10,000",
  },
  {
    name: "PostgreSQL",
    free: "sql-uncontended-postgres",
    contended: "sql-exclusion-postgres",
    handOff: "sql-hand-off-postgres",
  },
  { name: "MariaDB", free: "sql-uncontended-mysql", contended: "sql-exclusion-mysql", handOff: "sql-hand-off-mysql" },
  { name: "SQLite", free: "sql-uncontended-sqlite" },
  { name: "ZooKeeper", free: "zookeeper-alone", contended: "zookeeper-processes" },
  { name: "etcd", free: "etcd-alone", contended: "etcd-processes", handOff: "etcd-hand-off" },
];
const USUAL = "Holdfast";
const STRICT = "Holdfast, strict order";
/** Of the cases that measure one process and several, the latter is what the table compares. */
const SEVERAL_PROCESSES = "4 processes";
/** Rates that differ by less are the same. */
const NOISE = 0.1;

/** An implementation's figure in the first column of its case. */
interface Figure {
  /** "Holdfast, strict order", "redlock 4.2.0". */
  readonly label: string;
  readonly implementation: string;
  /** What stands before the implementation's name: "10 ms", "4 processes". */
  readonly prefix: string;
  readonly value: number;
  /** Callers that got nothing; 0 where they are not counted. */
  readonly starved: number;
}

export function renderPage(cases: readonly BenchCase[], results: Results): string {
  return `${[
    "# Benchmarks",
    "",
    "<!-- Written by `npm run bench -- --page` from docs/results.md. Do not edit: change bench/page. -->",
    "",
    "What a lock costs with Holdfast on each store, and with the best other library on the same store. All of it was measured on one machine, so " +
      "**read the ratios**. [Results](results.md) has the figures of every library, with date, commit and command; " +
      "[performance](guide/performance.md) says what to do about the cost of a lock.",
    "",
    ...renderStores(results),
    "",
    "- **Free**: one caller acquires and releases a lock that no other caller wants; pairs a second.",
    "- **Contended**: 32 or 64 callers in 4 processes want one lock all the time (in process, in one process); grants a second. Holdfast passes the lock " +
      "on within a process first. *Strict order* is the order of arrival among all callers.",
    "- **Hand-off**: from the release in one process to the grant in another one that waits; median.",
    "- **Held**: what renewing so many locks costs the client and the store together, of one core; on Redis with a lease of 5 s, on the server with 30 s.",
    "- **–**: no case measures it.",
    "",
    "A library without a queue reaches its rate by letting the last holder take the lock again; the table says how many callers got nothing in 0.4 s.",
    "",
    "## What we are worse at",
    "",
    ...renderWeaknesses(cases, results),
    "",
    ...describeMethod(results),
  ].join("\n")}\n`;
}

function renderStores(results: Results): string[] {
  const caseOf = (name: string | undefined): CaseResult | undefined =>
    results.cases.find((result) => result.name === name);
  return [
    "| | Free | Contended | Contended, in strict order | Hand-off | Held |",
    "|---|---|---|---|---|---|",
    ...STORES.flatMap(({ name, free, contended, handOff, held, heldCount }) => {
      const measured = [free, contended, contended, handOff, held].map(caseOf);
      const ours = measured.map((result, index) => renderOwn(result, index === 2 ? STRICT : USUAL, results));
      const others = measured.map((result, index) => (index === 2 ? "" : renderBestOther(result, results, name)));
      if (heldCount !== undefined) ours.push(`${ours.pop()} for ${heldCount}`);
      return [`| **${name}** | ${ours.join(" | ")} |`, `| best other | ${others.join(" | ")} |`];
    }),
  ];
}

function renderOwn(result: CaseResult | undefined, label: string, results: Results): string {
  if (result === undefined) return "–";
  const own = figuresOf(result, results).filter((figure) => figure.label === label);
  const figure = own.find(({ prefix }) => prefix === SEVERAL_PROCESSES) ?? own[0];
  return figure === undefined ? "–" : `[${formatFigure(result, figure)}](results.md#${anchorOf(result.title)})`;
}

/** live-mutex has a server of its own, which the cases of Redis show beside the libraries on Redis. */
function renderBestOther(result: CaseResult | undefined, results: Results, store: string): string {
  if (result === undefined) return "";
  const rivals = figuresOf(result, results).filter(
    ({ implementation }) =>
      kindOf(implementation) === "rival" && (implementation !== "live-mutex" || store === "Holdfast server"),
  );
  const several = rivals.filter(({ prefix }) => prefix === SEVERAL_PROCESSES);
  const [best] = sortByFigure(result, several.length > 0 ? several : rivals);
  if (best === undefined) return "";
  const starved = best.starved > 0 ? ` (${best.starved} callers got nothing)` : "";
  return `${formatFigure(result, best)}, ${best.label}${starved}`;
}

function renderWeaknesses(cases: readonly BenchCase[], results: Results): string[] {
  const rows = results.cases.flatMap((result) => {
    const figures = figuresOf(result, results);
    const reasons = cases.find(({ name }) => name === result.name)?.reasons;
    const leads = figures
      .filter(({ implementation }) => kindOf(implementation) === "holdfast")
      .flatMap((own) => {
        const isRival = ({ implementation, prefix }: Figure): boolean =>
          kindOf(implementation) === "rival" && prefix === own.prefix;
        const [best] = sortByFigure(result, figures.filter(isRival));
        const reason = reasons?.[own.implementation] ?? reasons?.["*"] ?? "Not explained yet.";
        return best !== undefined && isBehind(result, own.value, best.value) ? [{ own, best, reason }] : [];
      });
    return [...new Set(leads.map(({ reason }) => reason))].map((reason) => {
      const pairs = leads.filter((lead) => lead.reason === reason);
      const list = pairs.map(({ own, best }) => {
        const section = own.prefix === "" ? "" : `${own.prefix}: `;
        return `${section}${formatFigure(result, best)}, ${best.label}; ${formatFigure(result, own)}, ${own.label}`;
      });
      return `| [${result.title}](results.md#${anchorOf(result.title)}) | ${list.join("<br>")} | ${reason} |`;
    });
  });
  return [
    `Everything measured in which another library, or a lock by hand, is ahead of Holdfast by more than ${NOISE * 100} %.`,
    "",
    "| Case | Best other; Holdfast | Why |",
    "|---|---|---|",
    ...rows,
  ];
}

function figuresOf({ columns, rows }: CaseResult, { versions }: Results): Figure[] {
  return rows.map(({ name, cells }) => {
    const [implementation = "", prefix = ""] = name.split(": ").reverse();
    const starved = parseFigure(cells[columns.indexOf("callers with none")]) || 0;
    return { label: labelOf(implementation, versions), implementation, prefix, value: parseFigure(cells[0]), starved };
  });
}

/** The best first. */
function sortByFigure(result: CaseResult, figures: readonly Figure[]): Figure[] {
  const sign = isRate(result) ? -1 : 1;
  return figures.filter(({ value }) => !Number.isNaN(value)).sort((a, b) => sign * (a.value - b.value));
}

function isBehind(result: CaseResult, own: number, other: number): boolean {
  return isRate(result) ? own < other * (1 - NOISE) : own > other * (1 + NOISE);
}

/** Pairs and grants a second are good; all else that is compared is a cost. */
function isRate({ columns: [column = ""] }: CaseResult): boolean {
  return /^(?:pairs|grants)\/s$/.test(column);
}

/** "401 µs", "1.28 ms", "4,679/s", "9.1 %". */
function formatFigure({ columns: [column = ""] }: CaseResult, { value }: Figure): string {
  if (/\bus\b/.test(column)) return value >= 1_000 ? `${roundFigure(value / 1_000)} ms` : `${roundFigure(value)} µs`;
  if (/\bms\b/.test(column)) return `${roundFigure(value)} ms`;
  return `${roundFigure(value)}${column.endsWith("/s") ? "/s" : ""}${column.endsWith("%") ? " %" : ""}`;
}

/** As on GitHub. */
function anchorOf(title: string): string {
  return title
    .toLowerCase()
    .replace(/[^\p{L}\p{N}_ -]/gu, "")
    .replaceAll(" ", "-");
}

function describeMethod({ versions }: Results): string[] {
  const programs = ["machine", "Node.js", "Redis", "ZooKeeper", "PostgreSQL", "MariaDB"].flatMap((name) =>
    versions[name] === undefined ? [] : name === "machine" ? [versions[name]] : [`${name} ${versions[name]}`],
  );
  return [
    "## How it is measured",
    "",
    `The machine: ${programs.join(", ")}. Client, store and bench share it, and the network is its loopback. On a real network every round trip takes ` +
      "longer by the same time for all libraries, so that what needs fewer trips gains.",
    "",
    "- Each library has processes and a connection of its own. They take turns within a round. Rounds are counted after others that are not, since code is " +
      "compiled and heaps grow.",
    "- **A difference below about 25 % between two rates or times is noise**: the time of a call to another process is mostly the time until a sleeping " +
      "core is woken.",
    "- Rivals have their own delays between attempts, and as many attempts as they need.",
    "- Every library is checked for exclusion, and ours also for tokens that rise; the control, which locks nothing, must overlap.",
    "- PostgreSQL, MariaDB, SQLite and ZooKeeper sync each commit to the disk, as they do by default. Redis and the lock server do not.",
    "",
    "```sh",
    "npm ci",
    "npm run bench                                   # everything; or the first words of names of cases: redis, sql-uncontended",
    "npm run bench -- --page bench/results/DATE.json # keeps the results of this run, and writes this page",
    "```",
    "",
    "The bench installs the other libraries below `bench/`, starts stores of its own on free ports, and waits until nothing else keeps the machine busy. " +
      "Each case has goals, which are only reported, and gates, without which its rates would mean nothing: the number of commands, callers that got " +
      "nothing, overlaps. A gate must hold in every round, or the command fails.",
  ];
}
