/** A lock server with options the command line has no flag for: a process that a test can kill. */

import type { ServeOptions } from "../../../src/server/server.ts";
import { serve } from "../../../src/server/server.ts";

const options = JSON.parse(process.argv[2] ?? "{}") as ServeOptions;
const log = (message: string, error?: unknown): void => console.error(message, error ?? "");
const server = await serve({ ...options, log });
for (const address of server.addresses) console.log(`listening on ${address}`);
process.once("SIGTERM", () => void server.close());
