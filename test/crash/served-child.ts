/** A lock server on TCP as a process, with options of the test's own, that is killed and started again on its port. */

import { resolve } from "node:path";
import type { ServerLimits } from "../../src/server/limits.ts";
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
};

export async function mortal(
  here: Scene,
  { limits = {}, before = [], env = {}, state }: Options = {},
): Promise<Mortal> {
  const lives: Served[] = [];
  const start = async (listen: string): Promise<Served> => {
    const options = { listen, state: state ?? here.path("state"), limits };
    const [program = "", ...args] = [...before, process.execPath, PROGRAM, JSON.stringify(options)];
    const life = await served(here.program([program, ...args], { env }));
    lives.push(life);
    return life;
  };
  let now = await start("tcp://127.0.0.1:0");
  const { address, url } = now;
  return {
    url,
    raw: rawAddress(url),
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
