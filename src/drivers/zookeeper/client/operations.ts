/** What can be asked of a server, as requests. Paths are whole ones: the client's root is in them already. */

import type { Request } from "./calls.ts";
import { errorOf } from "./errors.ts";
import type { JuteReader, JuteWriter } from "./jute.ts";
import type { Acl, Mode, Stat } from "./records.ts";
import { MODE, OP, OPEN_TO_ALL, readAcl, readStat, writeAcl } from "./records.ts";

const NO_NODE = -101;
const NO_WATCHER = -121;
const ANY_VERSION = -1;
const NO_DATA = Buffer.alloc(0);

/** What may be said of a node that is to be made. */
export interface CreateOptions {
  readonly data?: Uint8Array;
  /** Default "persistent". */
  readonly mode?: Mode;
  /** Default: open to all. */
  readonly acl?: readonly Acl[];
  /** For the modes with "Ttl": removed after so long without children and changes. */
  readonly ttlMs?: number;
}

/** A node that was made. */
export interface Created {
  /** With its number, if it has one. */
  readonly path: string;
  /** The transaction that made it. */
  readonly czxid: bigint;
}

/** A step of a `multi`: all are done, or none. */
export type Step =
  | ({ readonly do: "create"; readonly path: string } & Omit<CreateOptions, "ttlMs">)
  | { readonly do: "delete"; readonly path: string; readonly version?: number }
  | { readonly do: "set"; readonly path: string; readonly data: Uint8Array; readonly version?: number }
  | { readonly do: "check"; readonly path: string; readonly version: number };

export function create(path: string, options: CreateOptions): Request<Created> {
  const { mode = "persistent", ttlMs } = options;
  const isTtl = mode.endsWith("Ttl");
  const op = mode === "container" ? OP.createContainer : isTtl ? OP.createTtl : OP.create2;
  return {
    op,
    what: `create ${path}`,
    write(writer) {
      writeCreate(writer, path, options);
      if (isTtl) writer.long(BigInt(ttlMs ?? 0));
    },
    read: (reader, czxid) => ({ path: reader.text(), czxid }),
  };
}

export function remove(path: string, version: number = ANY_VERSION): Request<void> {
  return {
    op: OP.delete,
    what: `delete ${path}`,
    write: (writer) => writer.text(path).int(version),
    read: () => undefined,
  };
}

/** What a server knows of the node; null: there is none. `watched` is told which of the two it was. */
export function exists(path: string, watch: boolean, watched: (there: boolean) => void): Request<Stat | null> {
  return {
    op: OP.exists,
    what: `look at ${path}`,
    write: (writer) => writer.text(path).bool(watch),
    read(reader) {
      watched(true);
      return readStat(reader);
    },
    refused(code) {
      if (code !== NO_NODE) return null;
      watched(false);
      return { result: null };
    },
  };
}

export function get(
  path: string,
  watch: boolean,
  watched: () => void,
): Request<{ readonly data: Buffer; readonly stat: Stat }> {
  return {
    op: OP.getData,
    what: `read ${path}`,
    write: (writer) => writer.text(path).bool(watch),
    read(reader) {
      watched();
      return { data: reader.buffer() ?? NO_DATA, stat: readStat(reader) };
    },
  };
}

export function set(path: string, data: Uint8Array, version: number = ANY_VERSION): Request<Stat> {
  const write = (writer: JuteWriter): unknown => writer.text(path).buffer(data).int(version);
  return { op: OP.setData, what: `write ${path}`, write, read: readStat };
}

export function children(
  path: string,
  watch: boolean,
  watched: () => void,
): Request<{ readonly names: readonly string[]; readonly stat: Stat }> {
  return {
    op: OP.getChildren2,
    what: `list ${path}`,
    write: (writer) => writer.text(path).bool(watch),
    read(reader) {
      watched();
      return { names: reader.vector((one) => one.text()), stat: readStat(reader) };
    },
  };
}

/** The server has heard of all that was done before this was asked. */
export function sync(path: string): Request<void> {
  return { op: OP.sync, what: `sync ${path}`, write: (writer) => writer.text(path), read: () => undefined };
}

export function getAcl(path: string): Request<readonly Acl[]> {
  return { op: OP.getAcl, what: `read the ACL of ${path}`, write: (writer) => writer.text(path), read: readAcl };
}

export function setAcl(path: string, acl: readonly Acl[], version: number = ANY_VERSION): Request<void> {
  const write = (writer: JuteWriter): void => {
    writer.text(path);
    writeAcl(writer, acl);
    writer.int(version);
  };
  return { op: OP.setAcl, what: `set the ACL of ${path}`, write, read: () => undefined };
}

/** A watch that stays: 0 on the node and its list of children, 1 on it and everything below. */
export function addWatch(path: string, recursive: boolean, watched: () => void): Request<void> {
  return {
    op: OP.addWatch,
    what: `watch ${path}`,
    write: (writer) => writer.text(path).int(recursive ? 1 : 0),
    read: () => watched(),
  };
}

const WATCHERS = { children: 1, data: 2, any: 3 } as const;

/** Makes the server forget the watches of this session on a node. Having none is no error. */
export function removeWatches(path: string, kind: keyof typeof WATCHERS): Request<void> {
  return {
    op: OP.removeWatches,
    what: `stop watching ${path}`,
    write: (writer) => writer.text(path).int(WATCHERS[kind]),
    read: () => undefined,
    refused: (code) => (code === NO_WATCHER ? { result: undefined } : null),
  };
}

/** Who the server takes us for: pairs of scheme and user. */
export function whoAmI(): Request<readonly { readonly scheme: string; readonly user: string }[]> {
  const read = (reader: JuteReader): { scheme: string; user: string }[] =>
    reader.vector((one) => ({ scheme: one.text(), user: one.text() }));
  return { op: OP.whoAmI, what: "who am I", write: () => undefined, read };
}

export function closeSession(): Request<void> {
  return { op: OP.closeSession, what: "close", write: () => undefined, read: () => undefined };
}

/** Gives the paths of the nodes made, in the order of the steps; null for other steps. */
export function multi(
  steps: readonly Step[],
): Request<{ readonly paths: readonly (string | null)[]; readonly zxid: bigint }> {
  return {
    op: OP.multi,
    what: `${steps.length} steps at once`,
    write(writer) {
      for (const step of steps) writeStep(writer, step);
      writer.int(-1).bool(true).int(-1);
    },
    read: (reader, zxid) => ({ paths: readResults(reader, steps), zxid }),
  };
}

function writeCreate(writer: JuteWriter, path: string, options: Omit<CreateOptions, "ttlMs">): void {
  const { data = NO_DATA, mode = "persistent", acl = OPEN_TO_ALL } = options;
  writer.text(path).buffer(data);
  writeAcl(writer, acl);
  writer.int(MODE[mode]);
}

function writeStep(writer: JuteWriter, step: Step): void {
  const header = (op: number): JuteWriter => writer.int(op).bool(false).int(-1);
  switch (step.do) {
    case "create":
      header(step.mode === "container" ? OP.createContainer : OP.create);
      return writeCreate(writer, step.path, step);
    case "delete":
      header(OP.delete)
        .text(step.path)
        .int(step.version ?? ANY_VERSION);
      return;
    case "set":
      header(OP.setData)
        .text(step.path)
        .buffer(step.data)
        .int(step.version ?? ANY_VERSION);
      return;
    case "check":
      header(OP.check).text(step.path).int(step.version);
  }
}

/** @throws the error of the step that failed: the others carry only "not done for that reason" */
function readResults(reader: JuteReader, steps: readonly Step[]): (string | null)[] {
  const paths: (string | null)[] = [];
  let failure: Error | null = null;
  for (;;) {
    const [op, done] = [reader.int(), reader.bool()];
    reader.int();
    if (done) break;
    let path: string | null = null;
    if (op === OP.create || op === OP.createContainer) path = reader.text();
    if (op === OP.createContainer) readStat(reader);
    else if (op === OP.setData) readStat(reader);
    else if (op === -1) {
      const code = reader.int();
      const step = steps[paths.length];
      // 0 and -2: would have been done, not tried
      if (code !== 0 && code !== -2) failure ??= errorOf(code, `${step?.do ?? "step"} ${step?.path ?? ""}`);
    }
    paths.push(path);
  }
  if (failure !== null) throw failure;
  return paths;
}
