/** Credentials and certificates read again while the server runs. What cannot be used leaves the old one in its place. */

import { readAccounts } from "./credentials.ts";
import type { Log } from "./logging.ts";
import type { Plan } from "./plan.ts";
import type { Ports } from "./ports.ts";
import type { ServeOptions } from "./serve.ts";
import { readTls } from "./tls.ts";

/** @throws Error naming all that was left as it was */
export function reload({ tls, access }: ServeOptions, plan: Plan, ports: Ports, log: Log): void {
  const kept: string[] = [];
  const attempt = (what: string, work: () => string): void => {
    try {
      log(`reloaded: ${work()}`);
    } catch (error) {
      kept.push(`${what}: ${(error as Error).message}`);
      log(`NOT reloaded, the old ${what} stay in use`, error, { level: "error" });
    }
  };
  if (tls !== undefined) {
    attempt("certificates", () => {
      const material = readTls(tls);
      if (material.dead !== null) throw new Error(material.dead);
      ports.secure(material);
      for (const warning of material.warnings) log(warning, undefined, { level: "warn" });
      return material.told;
    });
  }
  if (access !== undefined && "file" in access) {
    attempt("credentials", () => {
      const accounts = readAccounts(access.file);
      plan.access.replace(accounts);
      return `credentials of ${accounts.length} accounts`;
    });
  }
  if (kept.length > 0) throw new Error(`not reloaded: ${kept.join("; ")}`);
}
