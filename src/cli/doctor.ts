/** `holdfast doctor`: can the lock server be used, by whom, how fast, and what is to be done if not. */

import type { ServerInfo } from "../protocol/tools.ts";
import type { Driver, Finding, Pause } from "../spi/driver.ts";
import type { CommandError } from "./failure.ts";
import { commandError, EXIT_CODES } from "./failure.ts";
import { findingsOf, VERSIONS } from "./findings.ts";
import { jsonLine, print } from "./output.ts";
import { ownScreen, paint } from "./screen.ts";
import { openStore } from "./store.ts";
import type { TokensFound } from "./token-base.ts";
import { probeOf, tokensFound } from "./token-base.ts";
import { toolsOf } from "./tools.ts";

/** Flags of `doctor`. */
export interface DoctorFlags {
  readonly url?: string;
  readonly json?: boolean;
  readonly key?: string;
  readonly from?: string;
}

/** What was found out; null: that could not be. */
export interface Measured {
  /** How messages name the store. */
  readonly name: string;
  /** Why the store could not be used at all. */
  readonly failure: CommandError | null;
  /** Until the first answer. */
  readonly connectMs: number;
  /** Is a server of ours behind the store? */
  readonly isServer: boolean;
  /** What the server says of itself; a string: why it does not. */
  readonly info: ServerInfo | string;
  /** What the store's driver found; null: it does not look. */
  readonly store: readonly Finding[] | null;
  /** Our wall clock in the middle of the question, and how long the question took. */
  readonly wallMs: number;
  readonly tripMs: number;
  /** The key whose rights were asked for. */
  readonly key: string;
  readonly cycles: Cycles;
  /** Against the store that locks move from; null: nobody asked. */
  readonly tokens: TokensFound | null;
}

/** What came of acquiring and releasing a key that nobody else uses. */
export interface Cycles {
  /** How long it took, each time; a string: why that is not known. */
  readonly cyclesMs: readonly number[] | string;
  /** The store grants nothing new to anyone. */
  readonly paused: Pause | null;
  /** This credential may not. */
  readonly isForbidden: boolean;
}

const CYCLES = 20;

/** Examines the store and says what it means. The exit code is that of the worst that was found. */
export async function doctor(flags: DoctorFlags): Promise<number> {
  const measured = await measure(flags);
  const findings = findingsOf(measured);
  if (flags.json === true) print(jsonLine(recordOf(measured, findings)));
  else for (const line of findingLines(findings)) print(line);
  if (measured.failure !== null) return measured.failure.code;
  return findings.some(({ level }) => level === "bad") ? EXIT_CODES.unreachable : 0;
}

async function measure({ url, key = "", from }: DoctorFlags): Promise<Measured> {
  const name = url ?? process.env.HOLDFAST_URL;
  const unknown = {
    name: name === undefined || name === "" ? "your lock server" : name.replace(/\/\/[^/@]*@/, "//"),
    connectMs: 0,
    isServer: false,
    info: "it was not reached",
    store: null,
    wallMs: 0,
    tripMs: 0,
    key,
    cycles: unmeasured("it was not reached"),
    tokens: null,
  };
  const began = performance.now();
  try {
    const store = await openStore(url);
    const connectMs = performance.now() - began;
    const tools = await toolsOf(store);
    try {
      const sentAt = performance.now();
      const wallAt = Date.now();
      const info = (await tools?.info(key).catch(whyNot)) ?? "it is no Holdfast server";
      const tripMs = performance.now() - sentAt;
      const found = (await store.driver.examine?.()) ?? null;
      const cycles = await measuredCycles(store.driver, key);
      const tokens = from === undefined ? null : await tokensFound(store, key, from);
      const times = { connectMs, wallMs: wallAt + tripMs / 2, tripMs };
      return {
        ...unknown,
        ...times,
        name: store.name,
        failure: null,
        isServer: tools !== null,
        info,
        store: found,
        cycles,
        tokens,
      };
    } finally {
      tools?.close();
      await store.locks.close();
    }
  } catch (error) {
    return { ...unknown, failure: commandError(error, unknown.name) };
  }
}

/** Why something is not known; what is no answer of the server is thrown. */
function whyNot(error: unknown): string {
  const { code } = error as { readonly code?: unknown };
  if (typeof code !== "string") throw error;
  return (error as Error).message;
}

/** Acquires and releases a key that nobody else uses, one time after another. */
async function measuredCycles(driver: Driver, key: string): Promise<Cycles> {
  const times: number[] = [];
  for (let turn = 0; turn < CYCLES; turn++) {
    const claim = probeOf(key);
    const began = performance.now();
    try {
      const answer = await driver.claim(claim);
      if (answer.state !== "held") return { ...unmeasured("it grants nothing now"), paused: answer.paused ?? null };
      await driver.release([claim]);
    } catch (error) {
      const why = whyNot(error);
      return { ...unmeasured(why), isForbidden: /\bmay not\b/.test(why) };
    }
    times.push(performance.now() - began);
  }
  return { cyclesMs: times, paused: null, isForbidden: false };
}

function unmeasured(why: string): Cycles {
  return { cyclesMs: why, paused: null, isForbidden: false };
}

const MARKS = { good: "ok  ", bad: "BAD ", doubtful: "WARN", unknown: "--  " } as const;

function findingLines(findings: readonly Finding[]): string[] {
  const screen = ownScreen();
  return findings.flatMap(({ level, what, says, advice }) => {
    const colour = level === "good" ? "green" : level === "bad" ? "red" : level === "doubtful" ? "yellow" : "dim";
    const line = `${paint(MARKS[level], colour, screen)}  ${what.padEnd(11)}${says}`;
    return advice === undefined ? [line] : [line, `${" ".repeat(17)}${advice}`];
  });
}

function recordOf(
  { name, failure, info, key, cycles, connectMs, tokens }: Measured,
  findings: readonly Finding[],
): object {
  return {
    ok: failure === null && !findings.some(({ level }) => level === "bad"),
    url: name,
    ...VERSIONS,
    connectMs: Math.round(connectMs * 10) / 10,
    key,
    server: typeof info === "string" ? null : info,
    cyclesMs: typeof cycles.cyclesMs === "string" ? null : cycles.cyclesMs.map((ms) => Math.round(ms * 100) / 100),
    ...(tokens !== null && { tokenBase: tokens.tokenBase === null ? null : String(tokens.tokenBase) }),
    findings,
  };
}
