/** `holdfast gateway`: serves the locks of a store over HTTP until a signal stops it. */

import type { Command } from "commander";
import { createDriver } from "../../../client/driver-url.ts";
import type { DashboardSettings } from "../../../gateway/dashboard/dashboard.ts";
import type { Gateway } from "../../../gateway/gateway.ts";
import type { Driver } from "../../../spi/driver.ts";
import { CommandError, toCommandError } from "../../errors.ts";
import { loadDriver } from "../../load-driver.ts";
import { formatJsonLine, handleWarnings, printLine } from "../../output.ts";
import { InterruptedError } from "../../signals.ts";
import type { StoreChoice } from "../../store-choice.ts";
import { describeStore } from "../../store-choice.ts";
import { resultWithin } from "../../timeout.ts";
import { diagnoseDriver, diagnoseStore } from "../doctor/doctor.ts";
import { createLogger } from "../serve/log.ts";
import { throwErrors } from "../serve/serve.ts";
import { Settings, toSettingErrors } from "../serve/settings.ts";
import { waitForShutdown } from "../serve/shutdown.ts";
import { toGatewaySettings } from "./settings.ts";

/** Longer than a gateway waits for its withdrawals, and then for its releases. */
const CLOSE_TIMEOUT_MS = 12_000;

/** What a command adds to a gateway. */
export interface GatewayExtension {
  readonly dashboard?: (settings: Settings) => DashboardSettings;
  /** Prints where the gateway can be reached, after its start. */
  readonly announce: (gateway: Gateway, settings: Settings, storeName: string) => void;
}

/** `holdfast gateway`. @throws as serveGateway() */
export function gatewayCommand(command: Command): Promise<number> {
  return serveGateway(command, {
    announce: ({ address, runId }, settings) =>
      printLine(settings.has("json") ? formatJsonLine({ http: address, runId }) : `HTTP on ${address}`),
  });
}

/**
 * Serves until SIGTERM or SIGINT.
 * @throws CommandError usage or config with all errors; unreachable or refused if the store cannot be used or the
 * address is not available
 */
export async function serveGateway(command: Command, { dashboard, announce }: GatewayExtension): Promise<number> {
  const settings = new Settings(command);
  const { store, options, logFormat, logLevel } = toGatewaySettings(settings);
  const log = createLogger(logFormat, logLevel);
  handleWarnings((warning) => log(warning, undefined, { level: "warn" }));
  const { openGateway, resolveGatewayConfig } = await import("../../../gateway/gateway.ts");
  const { config, problems } = resolveGatewayConfig(options);
  const driver = await createStoreDriver(store, settings);
  throwErrors([...settings.errors, ...toSettingErrors(settings, problems)]);
  for (const warning of config.warnings) log(warning, undefined, { level: "warn" });
  if (settings.has("check")) {
    printLine("configuration is valid");
    return 0;
  }
  const storeName = describeStore(store);
  const parts = {
    driver: driver as Driver,
    log,
    storeName,
    dashboard: {
      ...dashboard?.(settings),
      diagnose: () => (store.driver === undefined ? diagnoseStore(store) : diagnoseDriver(driver as Driver, storeName)),
    },
  };
  const gateway = await awaitStart(openGateway({ ...options, ...parts }, config), storeName);
  // before printing the address: a reader of that line may send a signal at once
  const shutdown = waitForShutdown(toStoppable(gateway), { idleMs: undefined, onHangup: "reload", log });
  announce(gateway, settings, storeName);
  const { reason, isHangup } = await shutdown;
  log(`stopping: ${reason}`);
  // a driver of the user's own may not end, or fail at its end, which the log says: what waited here has been answered before
  await resultWithin(CLOSE_TIMEOUT_MS, gateway.close()).catch(() => undefined);
  if (isHangup) throw new InterruptedError("SIGHUP");
  return 0;
}

/** undefined: the url or the module is invalid, which is reported. @throws CommandError unreachable or refused */
async function createStoreDriver({ url, driver }: StoreChoice, settings: Settings): Promise<Driver | undefined> {
  try {
    if (driver !== undefined) return await loadDriver(driver);
    if (url?.startsWith("memory:") === true)
      throw new Error("memory: would be empty after a restart while clients still hold locks");
    return await createDriver(url || undefined);
  } catch (error) {
    // if the function of a module cannot reach its store, no setting is wrong
    if (error instanceof CommandError && error.kind !== "usage") throw error;
    settings.reportError(driver === undefined ? "url" : "driver", (error as Error).message);
    return undefined;
  }
}

async function awaitStart(opening: Promise<Gateway>, storeName: string): Promise<Gateway> {
  try {
    return await opening;
  } catch (error) {
    const { syscall, message } = error as NodeJS.ErrnoException;
    if (syscall === "listen" || message.startsWith("cannot listen")) {
      throw new CommandError("unreachable", `the gateway could not be started: ${message}`, { cause: error });
    }
    throw toCommandError(error, storeName);
  }
}

/** What ends a server, for a gateway: signals alone. */
function toStoppable(gateway: Gateway): Parameters<typeof waitForShutdown>[0] {
  return {
    reload: async () => gateway.reload(),
    ownershipLost: new Promise<never>(() => undefined),
    stats: () => ({ sessions: 0, claims: 0 }),
  };
}
