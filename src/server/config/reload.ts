/** Reads the files of a running server or gateway again: its accounts and its certificates. */

import type { AccessControl } from "../../auth/access-control.ts";
import { loadAccounts } from "../../auth/accounts-file.ts";
import type { Logger } from "../logger.ts";
import type { TlsConfig, TlsFiles } from "../net/tls-config.ts";
import { loadTlsConfig } from "../net/tls-config.ts";

interface Files {
  readonly tls?: TlsFiles;
  readonly access?: AccessControl | { readonly file: string };
}

/** What uses the contents of the files. */
interface Users {
  readonly access: AccessControl;
  readonly listener: { replaceCertificate(tlsConfig: TlsConfig): void };
  readonly log: Logger;
}

/**
 * Files that cannot be used leave the previous ones in force.
 * @throws Error naming everything that was not reloaded
 */
export function reloadFiles(files: Files, users: Users): void {
  const { tls, access } = files;
  const { log, listener } = users;
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
      listener.replaceCertificate(tlsConfig);
      for (const warning of tlsConfig.warnings) log(warning, undefined, { level: "warn" });
      return tlsConfig.summary;
    });
  }
  if (access !== undefined && "file" in access) {
    tryReload("credentials", () => {
      const accounts = loadAccounts(access.file);
      users.access.replace(accounts);
      return `credentials of ${accounts.length} accounts`;
    });
  }
  if (failures.length > 0) throw new Error(`not reloaded: ${failures.join("; ")}`);
}
