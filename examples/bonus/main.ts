// 100 bonuses, 1,000 users who want one at the same moment, and 100 of them press the button twice. Four processes with ten
// connections each serve them, by an optimistic version, by a lock, by a fenced transaction, and naively, which oversells.
//
//   npm run compile && node build/examples/bonus/main.js [--strategy NAME]... [postgres://... mysql://...]
//
// Without urls it starts a PostgreSQL and a MariaDB of its own. The tables t_bonus and t_bonus_winner are made and dropped.

import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { createFenceTable } from "holdfast/fencing";
import type { Connection, Database } from "./database.ts";
import { openDatabase } from "./database.ts";
import type { ProcessReport } from "./process-report.ts";
import type { StrategyName } from "./strategies.ts";
import { STRATEGIES } from "./strategies.ts";
import { startServers } from "./temporary-servers.ts";

const [BONUSES, USERS, TWICE, PROCESSES] = [100, 1_000, 100, 4];
const PROGRAM = fileURLToPath(new URL("./claimant.child.js", import.meta.url));

interface Run {
  readonly strategy: StrategyName;
  readonly won: number;
  readonly soldOut: number;
  readonly repeated: number;
  readonly retried: number;
  readonly seconds: number;
  /** What the tables say. */
  readonly winners: number;
  readonly distinctWinners: number;
  readonly left: number;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { strategy: { type: "string", multiple: true } },
});
const names = (values.strategy ?? Object.keys(STRATEGIES)) as StrategyName[];
const unknown = names.find((name) => !(name in STRATEGIES));
if (unknown !== undefined) throw new TypeError(`--strategy must be one of: ${Object.keys(STRATEGIES).join(", ")}`);

const servers = positionals.length > 0 ? null : await startServers();
try {
  for (const url of servers?.urls ?? positionals) await runAll(url);
} finally {
  await servers?.stop();
}

async function runAll(url: string): Promise<void> {
  const database = openDatabase(url, 1);
  console.log(`${database.name}: ${BONUSES} bonuses, ${USERS + TWICE} requests of ${USERS} users`);
  printLine("strategy", "won", "sold out", "repeated", "retried", "left", "seconds");
  await database.use((connection) => createFenceTable(connection.handle));
  const children = Array.from({ length: PROCESSES }, (_, index) => startClaimants(url, index));
  await Promise.all(children.map((child) => nextMessage(child)));
  for (const name of names) {
    const run = await runStrategy(children, database, name);
    const problem = findProblem(run);
    printLine(
      name,
      ...[run.won, run.soldOut, run.repeated, run.retried, run.left].map(String),
      run.seconds.toFixed(1),
      problem === null ? "" : `  ${problem}`,
    );
    if (problem !== null && STRATEGIES[name].isSafe) process.exitCode = 1;
  }
  const ends = children.map((child) => once(child, "exit"));
  for (const child of children) child.disconnect();
  await Promise.all(ends);
  await database.use(dropTables);
  await database.close();
  console.log();
}

async function runStrategy(
  children: readonly ChildProcess[],
  database: Database,
  strategy: StrategyName,
): Promise<Run> {
  await database.use(async (connection) => {
    await dropTables(connection);
    await connection.query(
      "create table t_bonus (id int primary key, left_count int not null, version bigint not null)",
    );
    await connection.query("insert into t_bonus values (?, ?, 0)", [1, BONUSES]);
    // no unique key, so that a user could win twice if the guard failed; a real table would have one
    await connection.query("create table t_bonus_winner (user_id int not null)");
    await connection.query("create index t_bonus_winner_user on t_bonus_winner (user_id)");
  });
  const startedAt = performance.now();
  const reporting = children.map((child) => nextMessage<ProcessReport>(child));
  for (const child of children) child.send(strategy);
  const reports = await Promise.all(reporting);
  const seconds = (performance.now() - startedAt) / 1_000;
  const [table] = await database.use((connection) =>
    connection.query(
      "select (select left_count from t_bonus) as remaining, count(*) as winners, count(distinct user_id) as users from t_bonus_winner",
    ),
  );
  const sum = (pick: (report: ProcessReport) => number | undefined): number =>
    reports.reduce((total, report) => total + (pick(report) ?? 0), 0);
  return {
    strategy,
    won: sum(({ counts }) => counts.won),
    soldOut: sum(({ counts }) => counts["sold out"]),
    repeated: sum(({ counts }) => counts.repeated),
    retried: sum(({ retries }) => retries),
    seconds,
    winners: Number(table?.winners),
    distinctWinners: Number(table?.users),
    left: Number(table?.remaining),
  };
}

/** Each user asks one process, and the first hundred users another one, too. */
function startClaimants(url: string, index: number): ChildProcess {
  const users = Array.from({ length: USERS }, (_, user) => user);
  const once = users.filter((user) => user % PROCESSES === index);
  const again = users.slice(0, TWICE).filter((user) => (user + 1) % PROCESSES === index);
  return fork(PROGRAM, [url, ...[...again, ...once].map(String)]);
}

/** null: each bonus was given to one user, and no user has two. */
function findProblem({ won, winners, distinctWinners, left }: Run): string | null {
  if (winners > BONUSES) return `OVERSOLD by ${winners - BONUSES}`;
  if (distinctWinners < winners) return "CLAIMED TWICE";
  return winners === BONUSES && won === winners && left === 0 ? null : "NOT ALL SOLD";
}

async function dropTables(connection: Connection): Promise<void> {
  await connection.query("drop table if exists t_bonus");
  await connection.query("drop table if exists t_bonus_winner");
}

function printLine(strategy: string, ...cells: readonly string[]): void {
  console.log(`${strategy.padEnd(20)}${cells.map((cell) => cell.padStart(10)).join("")}`.trimEnd());
}

/** The next message of a process, which must not end before. */
async function nextMessage<T>(child: ChildProcess): Promise<T> {
  const settled = new AbortController();
  const { signal } = settled;
  const ended = once(child, "disconnect", { signal }).then(() => {
    throw new Error("a process of claimants ended too early");
  });
  try {
    const [message] = await Promise.race([once(child, "message", { signal }), ended]);
    return message as T;
  } finally {
    ended.catch(() => undefined);
    settled.abort();
  }
}
