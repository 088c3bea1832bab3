/** Clients of ZooKeeper that make ephemeral sequential nodes: Holdfast's, and the two packages that there are. */

import { ZooKeeper } from "../../src/drivers/zookeeper/client/zookeeper.ts";
import { loadThirdParty } from "../harness/third-party.ts";

export interface NodeCreator {
  /** Makes a persistent node. */
  folder(path: string): Promise<unknown>;
  /** Makes an ephemeral sequential one; settles with its path. */
  create(prefix: string): Promise<string>;
  remove(path: string): Promise<unknown>;
}

export const HOLDFAST_CLIENT = "holdfast's client";
export const NATIVE_CLIENT = "zookeeper (native)";
export const PLAIN_CLIENT = "node-zookeeper-client";

const SESSION_MS = 30_000;
const DATA = Buffer.from("x");

/** Connected to a server, host:port. */
export function openClient(name: string, address: string): Promise<NodeCreator> {
  if (name === NATIVE_CLIENT) return openNative(address);
  return name === PLAIN_CLIENT ? openPlain(address) : openHoldfastClient(address);
}

async function openHoldfastClient(address: string): Promise<NodeCreator> {
  const [host = "", port] = address.split(":");
  const zk = new ZooKeeper({ servers: [{ host, port: Number(port) }], sessionMs: SESSION_MS });
  await zk.open();
  return {
    folder: (path) => zk.create(path, { mode: "persistent" }),
    create: async (prefix) => (await zk.create(prefix, { mode: "ephemeralSequential", data: DATA })).path,
    remove: (path) => zk.delete(path),
  };
}

interface NativeClient {
  once(event: "connect", callback: () => void): void;
  init(options: { connect: string; timeout: number; debug_level: number; host_order_deterministic: boolean }): void;
  create(path: string, data: Buffer, flags: number): Promise<string>;
  delete_(path: string, version: number): Promise<unknown>;
}

async function openNative(connect: string): Promise<NodeCreator> {
  const { default: module } = await loadThirdParty<{ default: { Promise: new () => NativeClient } }>("zookeeper");
  const zk = new module.Promise();
  const connected = new Promise<void>((resolve) => zk.once("connect", resolve));
  zk.init({ connect, timeout: SESSION_MS, debug_level: 1, host_order_deterministic: false });
  await connected;
  const [EPHEMERAL, SEQUENCE] = [1, 2];
  return {
    folder: (path) => zk.create(path, DATA, 0),
    create: (prefix) => zk.create(prefix, DATA, EPHEMERAL | SEQUENCE),
    remove: (path) => zk.delete_(path, -1),
  };
}

type NativeCallback<T> = (error: Error | null, found: T) => void;

interface PlainClient {
  once(event: "connected", callback: () => void): void;
  connect(): void;
  create(path: string, data: Buffer, callback: NativeCallback<string>): void;
  create(path: string, data: Buffer, mode: number, callback: NativeCallback<string>): void;
  remove(path: string, callback: NativeCallback<undefined>): void;
}

interface PlainModule {
  createClient(connect: string, options: { sessionTimeout: number }): PlainClient;
  readonly CreateMode: { readonly EPHEMERAL_SEQUENTIAL: number };
}

async function openPlain(address: string): Promise<NodeCreator> {
  const { default: module } = await loadThirdParty<{ default: PlainModule }>(PLAIN_CLIENT);
  const zk = module.createClient(address, { sessionTimeout: SESSION_MS });
  const connected = new Promise<void>((resolve) => zk.once("connected", resolve));
  zk.connect();
  await connected;
  const callNative = <T>(call: (callback: NativeCallback<T>) => void): Promise<T> =>
    new Promise((resolve, reject) => call((error, result) => (error ? reject(error) : resolve(result))));
  return {
    folder: (path) => callNative((callback) => zk.create(path, DATA, callback)),
    create: (prefix) =>
      callNative((callback) => zk.create(prefix, DATA, module.CreateMode.EPHEMERAL_SEQUENTIAL, callback)),
    remove: (path) => callNative((callback) => zk.remove(path, callback)),
  };
}
