/** `holdfast gateway`: serves the locks of a store over HTTP until a signal stops it. */

import type { Command } from "commander";
import { createDriver } from "../../../client/driver-url.ts";
import type { DashboardSettings } from "../../../gateway/dashboard/dashboard.ts";
import type { Gateway } from "../../../gateway/gateway.ts";
import type { Driver } from "../../../spi/driver.ts";
import { CommandError, toCommandError } from "../../errors.ts";
import { describeStore, resolveUrl } from "../../open-store.ts";
import { formatJsonLine, handleWarnings, printLine } from "../../output.ts";
import { InterruptedError } from "../../signals.ts";
import { diagnoseStore } from "../doctor/doctor.ts";
import { createLogger } from "../serve/log.ts";
import { throwErrors } from "../serve/serve.ts";
import { Settings, toSettingErrors } from "../serve/settings.ts";
import { waitForShutdown } from "../serve/shutdown.ts";
import { toGatewaySettings } from "./settings.ts";

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
  const { url, options, logFormat, logLevel } = toGatewaySettings(settings);
  const log = createLogger(logFormat, logLevel);
  handleWarnings((warning) => log(warning, undefined, { level: "warn" }));
  const { openGateway, resolveGatewayConfig } = await import("../../../gateway/gateway.ts");
  const { config, problems } = resolveGatewayConfig(options);
  const driver = await createStoreDriver(url, settings);
  throwErrors([...settings.errors, ...toSettingErrors(settings, problems)]);
  for (const warning of config.warnings) log(warning, undefined, { level: "warn" });
  if (settings.has("check")) {
    printLine("configuration is valid");
    return 0;
  }
  const storeName = describeStore(url);
  const parts = {
    driver: driver as Driver,
    log,
    storeName,
    dashboard: { ...dashboard?.(settings), diagnose: () => diagnoseStore(url) },
  };
  const gateway = await awaitStart(openGateway({ ...options, ...parts }, config), storeName);
  // before printing the address: a reader of that line may send a signal at once
  const shutdown = waitForShutdown(toStoppable(gateway), { idleMs: undefined, onHangup: "reload", log });
  announce(gateway, settings, storeName);
  const { reason, isHangup } = await shutdown;
  log(`stopping: ${reason}`);
  await gateway.close();
  if (isHangup) throw new InterruptedError("SIGHUP");
  return 0;
}

/** undefined: the url is invalid, which is reported. */
async function createStoreDriver(url: string | undefined, settings: Settings): Promise<Driver | undefined> {
  try {
    if (url?.startsWith("memory:") === true)
      throw new Error("memory: would be empty after a restart while clients still hold locks");
    return await createDriver(resolveUrl(url));
  } catch (error) {
    settings.reportError("url", (error as Error).message);
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
