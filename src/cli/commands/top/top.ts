/** `holdfast top [PREFIX]`: held locks and waiters by key, on a screen that follows the store. */

import type { Snapshot } from "../../../listing/key-rows.ts";
import { createSnapshot } from "../../../listing/key-rows.ts";
import { toClaimInfo } from "../../../spi/claim-info.ts";
import { parseDurationFlag } from "../../duration-flag.ts";
import { CommandError } from "../../errors.ts";
import type { Store } from "../../open-store.ts";
import { listClaims, openStore } from "../../open-store.ts";
import { escapeControl, formatJsonLine, handleWarnings, info, printLine } from "../../output.ts";
import { catchSignals } from "../../signals.ts";
import type { StoreFlags } from "../../store-choice.ts";
import { chooseStore, describeStore } from "../../store-choice.ts";
import { detectTerminal } from "../../terminal-table.ts";
import { resultWithin } from "../../timeout.ts";
import { hasFullScreen } from "./full-screen.ts";
import { LiveView } from "./live-view.ts";
import { formatReading, toJsonReading } from "./plain-output.ts";
import { describeLimit } from "./row-format.ts";

/** Flags of `top`. */
export interface TopFlags extends StoreFlags {
  readonly interval: string;
  readonly once?: boolean;
  readonly json?: boolean;
}

/** The most claims of a list: with more, a screen of keys is no help, and each list is work for the store. */
const MAX_CLAIMS = 2_000;
const MIN_INTERVAL_MS = 100;
/** The store must not delay the return to the shell. */
const CLOSE_MS = 1_000;

/** Shows the locks on keys that begin with `prefix`. @throws CommandError, InterruptedError */
export async function topCommand(prefix: string | undefined, flags: TopFlags): Promise<number> {
  const intervalMs = parseDurationFlag(flags.interval, "--interval", MIN_INTERVAL_MS);
  if (flags.json === true && flags.once !== true)
    throw new CommandError("usage", "--json needs --once: a screen cannot be printed as JSON");
  if (flags.once === true || !hasFullScreen()) await printOnce(prefix ?? "", flags);
  else await showLive(prefix ?? "", flags, intervalMs);
  return 0;
}

async function printOnce(prefix: string, flags: TopFlags): Promise<void> {
  const store = await openStore(flags);
  try {
    const reading = { storeName: store.name, prefix, snapshot: await readSnapshot(store, prefix) };
    if (flags.json === true) printLine(formatJsonLine(toJsonReading(reading, new Date())));
    else for (const line of formatReading(reading, detectTerminal())) printLine(line);
    if (!reading.snapshot.isComplete) info(`${describeLimit(MAX_CLAIMS)}; pass a PREFIX to narrow the list`);
  } finally {
    await store.close();
  }
}

async function showLive(prefix: string, flags: TopFlags, intervalMs: number): Promise<void> {
  const signals = catchSignals();
  const warnings = new Set<string>();
  handleWarnings((warning) => warnings.add(warning));
  let store: Store | null = null;
  const view = new LiveView({
    storeName: describeStore(chooseStore(flags)),
    prefix,
    maxClaims: MAX_CLAIMS,
    intervalMs,
    hasColors: detectTerminal().hasColors,
    async open() {
      const opened = await openStore(flags);
      store = opened;
      return () => readSnapshot(opened, prefix);
    },
  });
  try {
    await signals.orInterrupted(view.run());
  } finally {
    view.close();
    for (const warning of warnings) info(`warning: ${escapeControl(warning)}`);
    await closeStore(store);
  }
}

async function readSnapshot(store: Store, prefix: string): Promise<Snapshot> {
  const { items, next } = await listClaims(store, prefix, MAX_CLAIMS);
  return createSnapshot(
    items.map((view) => toClaimInfo(view)),
    prefix,
    next === undefined,
  );
}

async function closeStore(store: Store | null): Promise<void> {
  if (store !== null) await resultWithin(CLOSE_MS, store.close());
}
