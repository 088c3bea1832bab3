/** Where contenders of both kinds meet: a ZooKeeper of the test file's own, and what stands in it. */

import { afterEach } from "vitest";
import type { ZooKeeper } from "../../../src/drivers/zookeeper/client/zookeeper.ts";
import type { Crew } from "../services/curator.ts";
import { curatorCrew, ourCrew } from "../services/curator.ts";
import { until } from "../wait-for.ts";
import { zookeeperScene } from "../zookeeper-scene.ts";
import type { Register, RegisterOptions } from "./register.ts";
import { openRegister } from "./register.ts";

const WITHIN = 20_000;
// a JVM on a busy machine may stand still for a while
const SESSION_MS = 6_000;

type Meeting = { readonly register: Register; readonly ours: Crew; readonly theirs: Crew };

export type Crews = {
  /** A process of each kind, and a register that both write to; all end with the test. */
  meet(options?: RegisterOptions): Promise<Meeting>;
  /** Others than ours stand on this path. */
  leaveTo(path: string): void;
  /** The nodes of a path, the lowest number first. */
  lineOf(path: string): Promise<readonly { readonly name: string; readonly number: number }[]>;
  /** Settles when so many nodes stand there. */
  placesAt(path: string, count: number): Promise<void>;
  /** A connection that looks on. */
  zk(): ZooKeeper;
};

/** Called once at the head of a file. */
export function crews(): Crews {
  const scene = zookeeperScene();
  const open: AsyncDisposable[] = [];

  afterEach(async () => {
    await Promise.all(open.splice(0).map((one) => one[Symbol.asyncDispose]()));
  });

  const here: Crews = {
    zk: () => scene.zk,
    leaveTo: (path) => void scene.others.add(path),
    async meet(options) {
      const register = await openRegister(options);
      const { host, port } = scene.server.address;
      const terms = { server: `${host}:${port}`, sessionMs: SESSION_MS, registerPort: register.port };
      const [ours, theirs] = await Promise.all([ourCrew(terms), curatorCrew(terms)]);
      open.push(ours, theirs, register);
      return { register, ours, theirs };
    },
    async lineOf(path) {
      const { names } = await scene.zk.children(path).catch(() => ({ names: [] as readonly string[] }));
      return names.map((name) => ({ name, number: Number(name.slice(-10)) })).sort((a, b) => a.number - b.number);
    },
    async placesAt(path, count) {
      const isSo = async (): Promise<boolean> => (await here.lineOf(path)).length === count;
      await until(isSo, { within: WITHIN, what: `${count} places` });
    },
  };
  return here;
}
