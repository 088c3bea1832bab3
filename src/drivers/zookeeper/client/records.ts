/** Records of the protocol, in both directions, and its operation numbers. Names follow ZooKeeper's own definition. */

import type { JuteReader, JuteWriter } from "./jute.ts";

/** The operation numbers that this client uses. */
export const OP = {
  create: 1,
  delete: 2,
  exists: 3,
  getData: 4,
  setData: 5,
  getAcl: 6,
  sync: 9,
  ping: 11,
  getChildren2: 12,
  multi: 14,
  create2: 15,
  removeWatches: 18,
  createContainer: 19,
  auth: 100,
  sasl: 102,
  setWatches2: 105,
  whoAmI: 107,
  closeSession: -11,
} as const;

/** Reserved request numbers, for messages that are not ordinary requests. */
export const XID = { event: -1, ping: -2, auth: -4, setWatches: -8 } as const;

/** A node's metadata. */
export interface Stat {
  /** The transaction that created it: it rises across all nodes, and across restarts. */
  readonly czxid: bigint;
  readonly mzxid: bigint;
  /** Milliseconds since 1970, by the leader's clock. */
  readonly ctime: number;
  readonly mtime: number;
  readonly version: number;
  readonly cversion: number;
  readonly aversion: number;
  /** The session that it ends with; 0: none. */
  readonly ephemeralOwner: bigint;
  readonly dataLength: number;
  readonly numChildren: number;
  readonly pzxid: bigint;
}

export function readStat(reader: JuteReader): Stat {
  return {
    czxid: reader.long(),
    mzxid: reader.long(),
    ctime: Number(reader.long()),
    mtime: Number(reader.long()),
    version: reader.int(),
    cversion: reader.int(),
    aversion: reader.int(),
    ephemeralOwner: reader.long(),
    dataLength: reader.int(),
    numChildren: reader.int(),
    pzxid: reader.long(),
  };
}

/** One entry of a node's access control list. */
export interface Acl {
  /** Sum of 1 read, 2 write, 4 create, 8 delete, 16 admin. */
  readonly perms: number;
  readonly scheme: string;
  readonly id: string;
}

const ALL_PERMISSIONS = 31;
export const OPEN_TO_ALL: readonly Acl[] = [{ perms: ALL_PERMISSIONS, scheme: "world", id: "anyone" }];
/** All permissions for the identities authenticated on the creating connection, none for others. */
export const CREATOR_ALL: readonly Acl[] = [{ perms: ALL_PERMISSIONS, scheme: "auth", id: "" }];

export function writeAcl(writer: JuteWriter, acl: readonly Acl[]): void {
  writer.vector(acl, (itemWriter, { perms, scheme, id }) => itemWriter.int(perms).text(scheme).text(id));
}

export function readAcl(reader: JuteReader): Acl[] {
  return reader.vector((itemReader) => ({ perms: itemReader.int(), scheme: itemReader.text(), id: itemReader.text() }));
}

/** Kinds of nodes. */
export const MODE = {
  persistent: 0,
  ephemeral: 1,
  ephemeralSequential: 3,
  container: 4,
} as const;
export type Mode = keyof typeof MODE;

/** The first message on a connection. */
export interface ConnectRequest {
  readonly lastZxidSeen: bigint;
  readonly timeoutMs: number;
  readonly sessionId: bigint;
  readonly password: Buffer;
}

/** The server's answer about the session; timeoutMs 0 or less: the session has ended. */
export interface ConnectResponse {
  readonly timeoutMs: number;
  readonly sessionId: bigint;
  readonly password: Buffer;
}

export function writeConnect(writer: JuteWriter, request: ConnectRequest): void {
  const { lastZxidSeen, timeoutMs, sessionId, password } = request;
  writer.int(0).long(lastZxidSeen).int(timeoutMs).long(sessionId).buffer(password).bool(false);
}

export function readConnect(reader: JuteReader): ConnectResponse {
  reader.int();
  const [timeoutMs, sessionId] = [reader.int(), reader.long()];
  // the read-only flag, which old servers omit, is not read: this client is never read-only
  return { timeoutMs, sessionId, password: reader.buffer() ?? Buffer.alloc(16) };
}

/** The kinds of watch events. */
export type WatchedKind = "created" | "deleted" | "changed" | "children";

export interface WatchedEvent {
  readonly kind: WatchedKind;
  readonly path: string;
}

const EVENT_KINDS: Readonly<Record<number, WatchedKind>> = {
  1: "created",
  2: "deleted",
  3: "changed",
  4: "children",
};

/** Null for events of the session, which this client tracks itself, and of removed watches. */
export function readEvent(reader: JuteReader): WatchedEvent | null {
  const kind = EVENT_KINDS[reader.int()];
  reader.int();
  const path = reader.text();
  return kind === undefined ? null : { kind, path };
}
