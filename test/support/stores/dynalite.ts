/** A real dynalite for tests, which speaks the protocol of DynamoDB. */

import { resolveInterop } from "../interop.ts";
import type { HttpService } from "./http-service.ts";
import { startHttpService } from "./http-service.ts";

/** Its data end with it. */
export function startDynalite(): Promise<HttpService> {
  const program = resolveInterop("dynalite/cli.js", "dynalite");
  return startHttpService({
    name: "dynalite",
    command: (port) => [
      ...([process.execPath, program] as const),
      ...["--host", "127.0.0.1", "--port", String(port), "--createTableMs", "0"],
    ],
    environment: {},
    faults: /Error/g,
  });
}
