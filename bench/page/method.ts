/** How the figures of the page come about: the machine, the rounds, and how much they vary. */

import type { SavedCase } from "../harness/report.ts";
import { roundFigure } from "../harness/report.ts";

export function describeMethod(savedCases: readonly SavedCase[]): string[] {
  return [
    "## How it is measured",
    "",
    ...describeMachines(savedCases),
    "",
    "- Client, store and bench share the machine, and the network is its loopback. On a real network every round trip takes longer by the same time for " +
      "all libraries, so that what needs fewer trips gains.",
    `- Each library has processes and a connection of its own. They take turns within a round, and the first place goes round. ` +
      "Rounds are counted after others that are not, since code is compiled and heaps grow; each case says how many. A figure is the median of the " +
      "rounds, a ratio the median of the ratios within each round.",
    "- Rivals have their own delays between attempts, and as many attempts as they need; with their usual number many throw under contention.",
    "- Every library is checked for exclusion, and ours also for tokens that rise; the control, which locks nothing, must overlap.",
    "- CPU is what the kernel counts for the processes. Commands are those that Redis counts; what scripts call is counted apart.",
    "- PostgreSQL, MariaDB, SQLite and ZooKeeper sync each commit to the disk, as they do by default. Redis and the lock server do not.",
    "",
    "### How much figures vary",
    "",
    "The time of a call from one process to another is mostly the time until a sleeping core is woken, and the kernel decides where a process runs. So " +
      "rates of one caller move by 20 to 90 % between rounds of the same library, rates of many callers by 10 to 60 %, and across processes by more. " +
      "**A difference below about 25 % between two bars of a rate or a time is noise**; the thin lines show the least and the most. CPU for a pair and counts " +
      "of commands are steadier, and say more.",
    "",
    "### How to repeat it",
    "",
    "```sh",
    "npm ci",
    "npm run bench                  # everything; or the first words of names of cases: redis, sql-uncontended",
    "npm run bench -- redis --quick # only shows that it runs",
    "npm run bench -- --page bench/results/DATE.json # keeps the results of this run, and writes this page",
    "```",
    "",
    "The bench installs the other libraries below `bench/`, starts stores of its own on free ports, and waits until nothing else keeps the machine busy. " +
      "All tables, also of cases that are not on this page: [server and process](results/bench.md), [Redis](results/bench-redis.md), [Redis, code that is not warm](results/bench-cold.md), " +
      "[ZooKeeper](results/bench-zookeeper.md), [databases](results/bench-sql.md).",
  ];
}

/** One line for each machine that took part. */
function describeMachines(savedCases: readonly SavedCase[]): string[] {
  const lines = savedCases.map(({ environment: { machine, node, versions } }) => {
    const programs = ["Redis", "ZooKeeper", "Curator", "PostgreSQL", "MariaDB"].flatMap((name) =>
      versions[name] === undefined ? [] : `${name} ${versions[name]}`,
    );
    return `The machine: ${[machine, `Node ${node.replace(/^v/, "")}`, ...programs].join(", ")}.`;
  });
  const loads = savedCases.map(({ environment }) => environment.otherLoad);
  const load = `Other programs kept ${roundFigure(Math.max(0, ...loads.map(({ median }) => median)))} cores busy just before a measurement (median), at most ${roundFigure(Math.max(0, ...loads.map(({ most }) => most)))}.`;
  return [...new Set(lines), load];
}
