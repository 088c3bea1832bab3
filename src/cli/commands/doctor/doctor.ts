import type { Check, Driver } from "../../../spi/driver.ts";
import { redactUrl } from "../../../util/redact-url.ts";
import { EXIT_CODES, toCallError, toCommandError } from "../../errors.ts";
import type { Store } from "../../open-store.ts";
import { openAdmin, openStore } from "../../open-store.ts";
import { formatJsonLine, printLine } from "../../output.ts";
import type { StoreChoice, StoreFlags } from "../../store-choice.ts";
import { chooseStore, describeStore } from "../../store-choice.ts";
import { colorize, detectTerminal } from "../../terminal-table.ts";
import type { CycleTimes, Measurements } from "./report.ts";
import { buildReport, VERSIONS } from "./report.ts";
import { compareTokens, createProbeClaim } from "./token-migration.ts";

/** Flags of `doctor`. */
export interface DoctorFlags extends StoreFlags {
  readonly json?: boolean;
  readonly key?: string;
  readonly from?: string;
}

const CYCLES = 20;
const NO_SERVER = "the store is not a Holdfast server";

/** Measures the store and prints the checks. The exit code is that of the worst result. */
export async function doctorCommand(flags: DoctorFlags): Promise<number> {
  const measurements = await measure(flags);
  const checks = buildReport(measurements);
  if (flags.json === true) printLine(formatJsonLine(toJsonRecord(measurements, checks)));
  else for (const line of formatChecks(checks)) printLine(line);
  if (measurements.failure !== null) return measurements.failure.code;
  return checks.some(({ status }) => status === "fail") ? EXIT_CODES.unreachable : 0;
}

/** The checks that acquire no lock, for the dashboard. A store that cannot be used is one of their results. */
export async function diagnoseStore(choice: StoreChoice): Promise<readonly Check[]> {
  return buildReport(await measure(choice, false));
}

/** The same for an open driver of --driver. The module has only that one, which must be opened and closed once. */
export async function diagnoseDriver(driver: Driver, name: string): Promise<readonly Check[]> {
  const unreached = unreachedStore(name, "");
  const startedAt = performance.now();
  try {
    await driver.list({ key: createProbeClaim("").locks[0].key }, { max: 1 });
    const connectMs = performance.now() - startedAt;
    const storeChecks = await diagnose({ driver, name });
    return buildReport({
      ...unreached,
      failure: null,
      connectMs,
      info: NO_SERVER,
      storeChecks,
      cycles: CYCLES_OF_DOCTOR,
    });
  } catch (error) {
    return buildReport({ ...unreached, failure: toCallError(error, name) });
  }
}

async function measure(flags: DoctorFlags, acquires = true): Promise<Measurements> {
  const { key = "", from: fromUrl } = flags;
  const choice = chooseStore(flags);
  const unreached = unreachedStore(choice.url ? redactUrl(choice.url) : describeStore(choice), key);
  const startedAt = performance.now();
  try {
    const store = await openStore(flags);
    const connectMs = performance.now() - startedAt;
    const admin = await openAdmin(store);
    try {
      const sentAt = performance.now();
      const wallAt = Date.now();
      const info = (await admin?.info(key).catch(errorText)) ?? NO_SERVER;
      const roundTripMs = performance.now() - sentAt;
      const storeChecks = await diagnose(store);
      const cycles = acquires ? await measureCycles(store.driver, key) : CYCLES_OF_DOCTOR;
      const tokenComparison = fromUrl === undefined ? null : await compareTokens(store, key, fromUrl);
      const times = { connectMs, wallMs: wallAt + roundTripMs / 2, roundTripMs };
      return {
        ...unreached,
        ...times,
        name: store.name,
        failure: null,
        isServer: admin !== null,
        info,
        storeChecks,
        cycles,
        tokenComparison,
      };
    } finally {
      admin?.close();
      await store.close();
    }
  } catch (error) {
    return { ...unreached, failure: toCommandError(error, unreached.name) };
  }
}

/** What is known of a store before it was reached. */
function unreachedStore(name: string, key: string): Omit<Measurements, "failure"> {
  return {
    name,
    connectMs: 0,
    isServer: false,
    info: "the store was not reached",
    storeChecks: null,
    wallMs: 0,
    roundTripMs: 0,
    key,
    cycles: unknownCycles("the store was not reached"),
    tokenComparison: null,
  };
}

/** @throws CommandError unreachable, if the store does not answer */
async function diagnose({ driver, name }: Pick<Store, "driver" | "name">): Promise<readonly Check[] | null> {
  try {
    return (await driver.diagnose?.()) ?? null;
  } catch (error) {
    throw toCallError(error, name);
  }
}

/** The message of an error that the store reported. Any other error is thrown: it is a bug. */
function errorText(error: unknown): string {
  const { code } = error as { readonly code?: unknown };
  if (typeof code !== "string") throw error;
  return (error as Error).message;
}

/** Acquires and releases a key that no other client uses, CYCLES times in a row. */
async function measureCycles(driver: Driver, key: string): Promise<CycleTimes> {
  const times: number[] = [];
  for (let cycle = 0; cycle < CYCLES; cycle++) {
    const claim = createProbeClaim(key);
    const startedAt = performance.now();
    try {
      const answer = await driver.claim(claim);
      if (answer.state !== "held")
        return { ...unknownCycles("the store grants no new locks"), paused: answer.paused ?? null };
      await driver.release([{ claim, hasUnansweredClaim: false }]);
    } catch (error) {
      const reason = error instanceof TypeError ? errorText(error) : (error as Error).message;
      const isForbidden = /\bmay not\b/.test(reason);
      return { ...unknownCycles(reason), isForbidden, isFailing: !isForbidden };
    }
    times.push(performance.now() - startedAt);
  }
  return { cyclesMs: times, paused: null, isForbidden: false, isFailing: false };
}

function unknownCycles(reason: string): CycleTimes {
  return { cyclesMs: reason, paused: null, isForbidden: false, isFailing: false };
}

const CYCLES_OF_DOCTOR = unknownCycles("`holdfast doctor` measures it");

const STATUS_MARKS = { ok: "ok  ", warn: "WARN", fail: "FAIL", unknown: "--  " } as const;

/** Names are shorter, but for "conditional writes". */
const NAME_WIDTH = 12;

function formatChecks(checks: readonly Check[]): string[] {
  const terminal = detectTerminal();
  return checks.flatMap(({ status, name, message, hint }) => {
    const color = status === "ok" ? "green" : status === "fail" ? "red" : status === "warn" ? "yellow" : "dim";
    const line = `${colorize(STATUS_MARKS[status], color, terminal)}  ${name.padEnd(NAME_WIDTH - 1)} ${message}`;
    return hint === undefined ? [line] : [line, `${" ".repeat(6 + NAME_WIDTH)}${hint}`];
  });
}

function toJsonRecord(
  { name, failure, info, key, cycles, connectMs, tokenComparison }: Measurements,
  checks: readonly Check[],
): object {
  return {
    ok: failure === null && !checks.some(({ status }) => status === "fail"),
    url: name,
    ...VERSIONS,
    connectMs: Math.round(connectMs * 10) / 10,
    key,
    server: typeof info === "string" ? null : info,
    cyclesMs: typeof cycles.cyclesMs === "string" ? null : cycles.cyclesMs.map((ms) => Math.round(ms * 100) / 100),
    ...(tokenComparison !== null && {
      tokenBase: tokenComparison.tokenBase === null ? null : String(tokenComparison.tokenBase),
    }),
    checks,
  };
}
