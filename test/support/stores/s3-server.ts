/** A server for tests that speaks the protocol of S3: the Versity gateway where there is Go to compile it, else moto. */

import type { DatabaseProcess } from "./database-process.ts";
import { installMoto, startMoto } from "./moto.ts";
import { compileVersityGateway, hasVersityGateway, startVersityGateway } from "./versity-gateway.ts";

export interface S3Server extends Pick<DatabaseProcess, "start" | "stop" | "crash" | "signal"> {
  readonly endpoint: string;
  /** Ends it, and deletes its data. */
  dispose(): Promise<void>;
}

export function startS3(): Promise<S3Server> {
  return hasVersityGateway() ? startVersityGateway() : startMoto();
}

/** Long runs try both. */
export function installS3(): void {
  compileVersityGateway();
  if (!hasVersityGateway() || process.env.HOLDFAST_LONG === "1") installMoto();
}
