/** A lock server on TCP as a process, with options of the test's own, that is killed and started again on its port. */

import { readFileSync } from "node:fs";
import type { ServerLimits } from "../../../src/server/limits.ts";
import type { ServeOptions } from "../../../src/server/server.ts";
import { builtFile } from "../built-file.ts";
import type { CertificateFiles } from "../certificates.ts";
import type { RawAddress } from "../raw-client.ts";
import { parseRawAddress } from "../raw-client.ts";
import type { ProcessHarness, RunningServer } from "./process-harness.ts";
import { waitUntilListening } from "./process-harness.ts";

const PROGRAM = builtFile("build/test/support/processes/server.child.js");

export type ServerProcess = {
  readonly url: string;
  readonly rawAddress: RawAddress;
  pid(): number;
  /** What it has said on its error output, in all its lives. */
  logged(): string;
  /** kill -9. */
  kill(): Promise<void>;
  /** SIGTERM; what it could not save stands in its log. */
  stop(): Promise<void>;
  /** On the same port with the same state. */
  restart(): Promise<void>;
};

type ServerProcessOptions = {
  readonly limits?: Partial<ServerLimits>;
  /** Put before the command: a program that starts it. */
  readonly commandPrefix?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Default: a folder of the scene's. */
  readonly state?: string;
  /** Speaks TLS. */
  readonly tls?: CertificateFiles;
  /** The file of accounts. */
  readonly accounts?: string;
};

export async function startServerProcess(
  harness: ProcessHarness,
  { limits = {}, commandPrefix = [], env = {}, state, tls, accounts }: ServerProcessOptions = {},
): Promise<ServerProcess> {
  const processes: RunningServer[] = [];
  const start = async (listen: string): Promise<RunningServer> => {
    const options: ServeOptions = {
      listen,
      state: state ?? harness.path("state"),
      limits,
      ...(tls !== undefined && { tls: { cert: tls.cert, key: tls.key } }),
      ...(accounts !== undefined && { access: { file: accounts } }),
    };
    const [program = "", ...args] = [...commandPrefix, process.execPath, PROGRAM, JSON.stringify(options)];
    const server = await waitUntilListening(harness.startProgram([program, ...args], { env }));
    processes.push(server);
    return server;
  };
  let current = await start(tls === undefined ? "holdfast://127.0.0.1:0" : "holdfasts://127.0.0.1:0");
  const { url } = current;
  return {
    url: tls === undefined ? url : `${url}?ca=${encodeURIComponent(tls.ca)}`,
    rawAddress: { ...parseRawAddress(url), ...(tls !== undefined && { ca: readFileSync(tls.ca, "utf8") }) },
    pid: () => current.pid,
    logged: () => processes.map((server) => server.err()).join(""),
    async kill() {
      current.kill();
      await current.ended;
    },
    async stop() {
      current.process.kill("SIGTERM");
      await current.ended;
    },
    async restart() {
      current = await start(url);
    },
  };
}
