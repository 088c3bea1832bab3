/** A lock server on TCP as a process, with options of the test's own, that is killed and started again on its port. */

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import type { ServerLimits } from "../../src/server/limits.ts";
import type { ServeOptions } from "../../src/server/serve.ts";
import type { CertificateFiles } from "../support/certificates.ts";
import type { RawAddress } from "../support/raw-client.ts";
import { rawAddress } from "../support/raw-client.ts";
import type { Scene, Served } from "./scene.ts";
import { served } from "./scene.ts";

const PROGRAM = resolve("build/test/crash/server.child.js");

export type Mortal = {
  readonly url: string;
  readonly raw: RawAddress;
  pid(): number;
  /** What it has said on its error output, in all its lives. */
  logged(): string;
  /** kill -9. */
  kill(): Promise<void>;
  /** On the same port with the same state. */
  restart(): Promise<void>;
};

type Options = {
  readonly limits?: Partial<ServerLimits>;
  /** Put before the command: a program that starts it. */
  readonly before?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Default: a folder of the scene's. */
  readonly state?: string;
  /** Speaks TLS. */
  readonly tls?: CertificateFiles;
  /** The file of accounts. */
  readonly accounts?: string;
};

export async function mortal(
  here: Scene,
  { limits = {}, before = [], env = {}, state, tls, accounts }: Options = {},
): Promise<Mortal> {
  const lives: Served[] = [];
  const start = async (listen: string): Promise<Served> => {
    const options: ServeOptions = {
      listen,
      state: state ?? here.path("state"),
      limits,
      ...(tls !== undefined && { tls: { cert: tls.cert, key: tls.key } }),
      ...(accounts !== undefined && { access: { file: accounts } }),
    };
    const [program = "", ...args] = [...before, process.execPath, PROGRAM, JSON.stringify(options)];
    const life = await served(here.program([program, ...args], { env }));
    lives.push(life);
    return life;
  };
  let now = await start(tls === undefined ? "tcp://127.0.0.1:0" : "tls://127.0.0.1:0");
  const { address, url } = now;
  return {
    url: tls === undefined ? url : `${address.replace("tls:", "holdfasts:")}?ca=${encodeURIComponent(tls.ca)}`,
    raw: { ...rawAddress(url), ...(tls !== undefined && { ca: readFileSync(tls.ca, "utf8") }) },
    pid: () => now.pid,
    logged: () => lives.map((life) => life.err()).join(""),
    async kill() {
      now.kill();
      await now.ended;
    },
    async restart() {
      now = await start(address);
    },
  };
}
