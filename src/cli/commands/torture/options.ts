/** The flags of `holdfast torture`. */

import { resolve } from "node:path";
import type { FaultName } from "../../../torture/faults.ts";
import { FAULT_NAMES } from "../../../torture/faults.ts";
import { isStoreFault } from "../../../torture/stores/started-store.ts";
import type { StoreName } from "../../../torture/stores/stores.ts";
import { STORE_NAMES } from "../../../torture/stores/stores.ts";
import { parseDurationFlag } from "../../duration-flag.ts";
import { CommandError } from "../../errors.ts";
import { resolveModulePath } from "../../load-driver.ts";
import type { StoreChoice, StoreFlags } from "../../store-choice.ts";
import { chooseStore } from "../../store-choice.ts";

export interface TortureFlags extends StoreFlags {
  readonly start?: string;
  readonly rival?: readonly string[];
  readonly faults?: string;
  readonly time: string;
  readonly seed?: string;
  readonly out?: string;
  readonly yes?: boolean;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

export interface TortureSettings {
  /** The stores to start; empty: that of the user. */
  readonly start: readonly StoreName[];
  /** The user's; null: some are started. */
  readonly choice: StoreChoice | null;
  /** Paths of the adapters of rivals; empty: Holdfast. */
  readonly rivals: readonly string[];
  readonly faults: readonly FaultName[];
  readonly ms: number;
  readonly seed: number;
  readonly out: string;
  readonly isConfirmed: boolean;
  readonly isQuiet: boolean;
  readonly isJson: boolean;
}

const MIN_MS = 1_000;
const MAX_SEED = 999_999_999;

/** @throws CommandError usage */
export function parseTortureFlags(flags: TortureFlags): TortureSettings {
  const choice = chooseUsersStore(flags);
  const seed = flags.seed === undefined ? Math.floor(Math.random() * 1_000_000) : parseSeed(flags.seed);
  return {
    start: choice === null ? parseStart(flags.start) : [],
    choice,
    rivals: (flags.rival ?? []).map(resolveModulePath),
    faults: parseFaults(flags.faults, choice !== null),
    ms: parseDurationFlag(flags.time, "--time", MIN_MS),
    seed,
    out: resolve(flags.out ?? `torture-${seed}`),
    isConfirmed: flags.yes === true,
    isQuiet: flags.quiet === true,
    isJson: flags.json === true,
  };
}

/** Null: none was named, so stores are started. @throws CommandError usage */
function chooseUsersStore({ start, url, driver }: TortureFlags): StoreChoice | null {
  const named = url !== undefined ? "--url" : driver !== undefined ? "--driver" : null;
  if (start !== undefined && named !== null)
    throw new CommandError("usage", `--start and ${named} exclude each other: torture starts a store, or uses yours`);
  if (start !== undefined) return null;
  const choice = chooseStore({ url, driver });
  if (choice.driver !== undefined) return { ...choice, driver: resolveModulePath(choice.driver) };
  return choice.url === undefined ? null : choice;
}

function parseStart(text = "server"): StoreName[] {
  const names = text.split(",");
  for (const name of names) {
    if (!(STORE_NAMES as readonly string[]).includes(name))
      throw new CommandError(
        "usage",
        `--start must be one or more of ${STORE_NAMES.join(",")}, not ${JSON.stringify(name)}`,
      );
  }
  return [...new Set(names)] as StoreName[];
}

/** Faults of the store only where torture has started it: nothing overrides that. */
function parseFaults(text: string | undefined, isUsersStore: boolean): FaultName[] {
  const possible = FAULT_NAMES.filter((name) => !isUsersStore || !isStoreFault(name));
  if (text === undefined) return possible;
  if (text === "none") return [];
  return text.split(",").map((name) => {
    const fault = FAULT_NAMES.find((one) => one === name);
    if (fault === undefined)
      throw new CommandError(
        "usage",
        `--faults must be none, or some of ${FAULT_NAMES.join(",")}, not ${JSON.stringify(name)}`,
      );
    if (isUsersStore && isStoreFault(fault))
      throw new CommandError(
        "usage",
        `--faults ${fault} would harm your store: it is possible only for a store that --start starts`,
      );
    return fault;
  });
}

function parseSeed(text: string): number {
  const seed = Number(text);
  if (!/^\d{1,9}$/.test(text) || seed > MAX_SEED)
    throw new CommandError("usage", `--seed must be a number from 0 to ${MAX_SEED}, not ${JSON.stringify(text)}`);
  return seed;
}
