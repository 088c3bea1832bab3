/** Where contenders of both kinds meet: a ZooKeeper of the test file's own, and what stands in it. */

import { afterEach } from "vitest";
import type { ZooKeeper } from "../../../src/drivers/zookeeper/client/zookeeper.ts";
import { until } from "../../../src/testing/until.ts";
import { zookeeperFixture } from "../stores/zookeeper-fixture.ts";
import type { ContenderProcess } from "./contender-process.ts";
import { startCuratorContender, startHoldfastContender } from "./contender-process.ts";
import type { ExclusionRegister, RegisterOptions } from "./exclusion-register.ts";
import { openExclusionRegister } from "./exclusion-register.ts";

const TIMEOUT_MS = 20_000;
// a JVM on a busy machine may stand still for a while
const SESSION_MS = 6_000;

type Contest = {
  readonly register: ExclusionRegister;
  readonly holdfast: ContenderProcess;
  readonly curator: ContenderProcess;
};

export type CuratorFixture = {
  /** A process of each kind, and a register that both write to; all end with the test. */
  startContest(options?: RegisterOptions): Promise<Contest>;
  /** Others than ours stand on this path. */
  excludePath(path: string): void;
  /** The nodes of a path, the lowest number first. */
  listQueue(path: string): Promise<readonly { readonly name: string; readonly number: number }[]>;
  /** Settles when so many nodes stand there. */
  waitForNodes(path: string, count: number): Promise<void>;
  /** A connection that looks on. */
  observer(): ZooKeeper;
};

/** Called once at the head of a file. */
export function curatorFixture(): CuratorFixture {
  const scene = zookeeperFixture();
  const open: AsyncDisposable[] = [];

  afterEach(async () => {
    await Promise.all(open.splice(0).map((asyncDisposable) => asyncDisposable[Symbol.asyncDispose]()));
  });

  const fixture: CuratorFixture = {
    observer: () => scene.observer,
    excludePath: (path) => void scene.foreignPaths.add(path),
    async startContest(options) {
      const register = await openExclusionRegister(options);
      const { host, port } = scene.server.address;
      const settings = { server: `${host}:${port}`, sessionMs: SESSION_MS, registerPort: register.port };
      const [holdfast, curator] = await Promise.all([
        startHoldfastContender(settings),
        startCuratorContender(settings),
      ]);
      open.push(holdfast, curator, register);
      return { register, holdfast, curator };
    },
    async listQueue(path) {
      const { names } = await scene.observer.children(path).catch(() => ({ names: [] as readonly string[] }));
      return names.map((name) => ({ name, number: Number(name.slice(-10)) })).sort((a, b) => a.number - b.number);
    },
    async waitForNodes(path, count) {
      const condition = async (): Promise<boolean> => (await fixture.listQueue(path)).length === count;
      await until(condition, { within: TIMEOUT_MS, what: `${count} places` });
    },
  };
  return fixture;
}
