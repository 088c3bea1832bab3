/** A server for tests that speaks the protocol of S3: the Versity gateway where there is Go to compile it, else moto. */

import type { HttpService } from "./http-service.ts";
import { installMoto, startMoto } from "./moto.ts";
import { compileVersityGateway, hasVersityGateway, startVersityGateway } from "./versity-gateway.ts";

export function startS3(): Promise<HttpService> {
  return hasVersityGateway() ? startVersityGateway() : startMoto();
}

/** Long runs try both. */
export function installS3(): void {
  compileVersityGateway();
  if (!hasVersityGateway() || process.env.HOLDFAST_LONG === "1") installMoto();
}
