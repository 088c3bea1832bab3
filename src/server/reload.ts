/**
 * Reloads credentials and certificates while the server runs. Files that cannot be used leave the previous ones in
 * force.
 */

import { loadAccounts } from "./auth/accounts-file.ts";
import type { ServerConfig } from "./config/config.ts";
import type { Logger } from "./config/logger.ts";
import type { Listeners } from "./net/listeners.ts";
import { loadTlsConfig } from "./net/tls-config.ts";
import type { ServeOptions } from "./server.ts";

/** @throws Error naming everything that was not reloaded */
export function reloadFiles(
  { tls, access }: ServeOptions,
  config: ServerConfig,
  listeners: Listeners,
  log: Logger,
): void {
  const failures: string[] = [];
  const tryReload = (subject: string, work: () => string): void => {
    try {
      log(`reloaded: ${work()}`);
    } catch (error) {
      failures.push(`${subject}: ${(error as Error).message}`);
      log(`NOT reloaded; the previous ${subject} remain in use`, error, { level: "error" });
    }
  };
  if (tls !== undefined) {
    tryReload("certificates", () => {
      const tlsConfig = loadTlsConfig(tls);
      if (tlsConfig.invalidReason !== null) throw new Error(tlsConfig.invalidReason);
      listeners.replaceCertificate(tlsConfig);
      for (const warning of tlsConfig.warnings) log(warning, undefined, { level: "warn" });
      return tlsConfig.summary;
    });
  }
  if (access !== undefined && "file" in access) {
    tryReload("credentials", () => {
      const accounts = loadAccounts(access.file);
      config.access.replace(accounts);
      return `credentials of ${accounts.length} accounts`;
    });
  }
  if (failures.length > 0) throw new Error(`not reloaded: ${failures.join("; ")}`);
}
