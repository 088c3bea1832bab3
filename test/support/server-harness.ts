// A server, its disk and its clients without sockets or real time: crashes and waits of a minute take no time.

import type { AccessControl } from "../../src/auth/access-control.ts";
import { ALLOW_ALL } from "../../src/auth/access-control.ts";
import { lockServer } from "../../src/drivers/server/driver.ts";
import type { LockTable } from "../../src/lock-table/table.ts";
import type { Connector, TransportEvents } from "../../src/net/transport.ts";
import type { ProcessState } from "../../src/os/process-info.ts";
import type { ServerParts } from "../../src/server/compose.ts";
import { composeServer } from "../../src/server/compose.ts";
import type { Connection } from "../../src/server/connection/connection.ts";
import type { ServerLimits } from "../../src/server/limits.ts";
import { resolveLimits } from "../../src/server/limits.ts";
import type { LocalBackend } from "../../src/server/local/local-backend.ts";
import type { CommandRuns } from "../../src/server/runs/command-run.ts";
import { NO_COMMAND_RUNS } from "../../src/server/runs/command-run.ts";
import type { LockService } from "../../src/server/service.ts";
import type { Session } from "../../src/server/session/session.ts";
import { decodeRecord, decodeState, encodeRecord, encodeState } from "../../src/server/storage/format.ts";
import type {
  JournalRecord,
  LoadedState,
  RecoveryReason,
  SavedSession,
  SavedState,
  Storage,
} from "../../src/server/storage/storage.ts";
import type { Answer, Claim, ClaimId, Driver } from "../../src/spi/driver.ts";
import { toDriverEvents } from "./driver-events.ts";
import { FakeClock, flushEventLoop, withWallOffset } from "./fake-clock.ts";
import { onCleanup } from "./server-fixture.ts";
import type { StoppableProcess } from "./stoppable-process.ts";

/** Of a server that has crashed. */
const NEVER = new Promise<never>(() => undefined);

const encodeRecords = (records: readonly JournalRecord[]): string =>
  records.map((journalRecord) => `${encodeRecord(journalRecord)}\n`).join("");

/** A disk that keeps texts, as the real one does. */
export class MemoryStorage implements Storage {
  state: string | null = null;
  journal = "";
  sessions: SavedSession[] | null = null;
  fresh = true;
  sameBoot = true;
  /** Every write fails; "journal": those of the journal, which is longer. */
  isFull: boolean | "journal" = false;
  /** Writes settle only when this does. */
  writeGate: Promise<void> = Promise.resolve();
  readonly writes: string[] = [];
  /** Two writes of the same file were under way at a time. */
  hadOverlappingWrites = false;
  readonly #pendingFiles = new Set<string>();
  #epoch = 0;

  /** Nothing is written from now on, until what is given back is called. */
  blockWrites(): () => void {
    let open = (): void => undefined;
    this.writeGate = new Promise((resolve) => {
      open = resolve;
    });
    return open;
  }

  async load(): Promise<LoadedState> {
    return {
      state: this.state === null ? null : decodeState(this.state, "state").saved,
      isFirstStart: this.fresh,
      journal: this.journal.split("\n").slice(0, -1).map(decodeRecord),
      sessions: this.sessions,
      isSameBoot: this.sameBoot,
    };
  }
  async beginRun({ state, journal, sessions }: Parameters<Storage["beginRun"]>[0]): Promise<void> {
    this.sessions = [...sessions];
    await this.rewriteJournal(journal);
    await this.saveState(state);
  }
  async saveState(state: SavedState): Promise<void> {
    await this.#write("save");
    this.fresh = false;
    this.state = encodeState(state, null);
  }
  async appendJournal(records: readonly JournalRecord[]): Promise<void> {
    await this.#write("append");
    this.journal += encodeRecords(records);
  }
  async rewriteJournal(records: readonly JournalRecord[]): Promise<void> {
    await this.#write("rewrite");
    this.journal = encodeRecords(records);
  }
  addSession(session: SavedSession): void {
    this.sessions = [...(this.sessions ?? []).filter(({ id }) => id !== session.id), session];
  }
  removeSession(session: string): void {
    this.sessions = (this.sessions ?? []).filter(({ id }) => id !== session);
  }
  async close(): Promise<void> {
    // nothing is open
  }

  /** For one run of the server: when it has crashed, nothing that it has not written yet ever will be. */
  openForRun(): Storage {
    const start = this.#epoch;
    const alive = <T>(write: () => T): T | Promise<never> => (start === this.#epoch ? write() : NEVER);
    return {
      load: () => this.load(),
      beginRun: (start) => alive(() => this.beginRun(start)),
      saveState: (state) => alive(() => this.saveState(state)),
      appendJournal: (records) => alive(() => this.appendJournal(records)),
      rewriteJournal: (records) => alive(() => this.rewriteJournal(records)),
      addSession: (session) => void alive(() => this.addSession(session)),
      removeSession: (id) => void alive(() => this.removeSession(id)),
      close: () => this.close(),
    };
  }

  loseUnwritten(): void {
    this.#epoch++;
    this.#pendingFiles.clear();
  }

  async #write(operation: string): Promise<void> {
    this.writes.push(operation);
    const [file, start] = [operation === "save" ? "state" : "journal", this.#epoch];
    if (this.#pendingFiles.has(file)) this.hadOverlappingWrites = true;
    this.#pendingFiles.add(file);
    await this.writeGate;
    if (start !== this.#epoch) await NEVER;
    this.#pendingFiles.delete(file);
    if (this.isFull === true || (this.isFull === "journal" && operation !== "save"))
      throw Object.assign(new Error("no space"), { code: "ENOSPC" });
  }
}

export interface HarnessClient {
  readonly driver: Driver;
  /** From its last handshake. */
  sessionId: string;
  readonly pushes: { readonly id: ClaimId | null; readonly answer: Answer | undefined }[];
  /** The claims that were recalled, one entry for each push. */
  readonly recalls: ClaimId[];
  /** What the server says of its process, if it asks. */
  processState: ProcessState;
  /** Ends its connection as its death would. */
  disconnect(): void;
  /** While true it cannot connect. */
  isUnreachable: boolean;
  /** While true what is sent either way is lost, and nobody is told. */
  dropsTraffic: boolean;
  /** Lines it has sent, and how often it has dialled. */
  linesSent: number;
  dials: number;
}

interface TestConnection {
  readonly connection: Connection;
  readonly events: TransportEvents;
  readonly client: { pipes: Set<TestConnection> };
  isOpen: boolean;
}

/** What the running server keeps, in a local backend. */
export interface ServerInspection {
  readonly backend: LocalBackend;
  readonly table: LockTable;
  readonly records: LockTable["records"];
  readonly sessions: ReadonlyMap<string, Session>;
  readonly isRecovering: boolean;
  readonly recoveryRemainingMs: number;
  readonly recoveryReason: RecoveryReason | null;
}

export class ServerHarness {
  readonly clock: FakeClock = new FakeClock();
  readonly storage: MemoryStorage | null;
  readonly logLines: string[] = [];
  readonly remote: boolean;
  readonly access: AccessControl;
  limits: ServerLimits;
  /** Runs that outlive their wrappers. */
  commandRuns: CommandRuns = NO_COMMAND_RUNS;
  parts: ServerParts | null = null;
  startCount = 0;
  /** By how much the server's wall clock is ahead of its clients'. */
  serverClockOffsetMs = 0;
  readonly #connections = new Set<TestConnection>();
  readonly #processStates = new Map<string, () => ProcessState>();

  constructor(
    options: {
      readonly state?: "none";
      readonly remote?: boolean;
      readonly access?: AccessControl;
      readonly limits?: Partial<ServerLimits>;
    } = {},
  ) {
    this.access = options.access ?? ALLOW_ALL;
    this.limits = resolveLimits(options.limits);
    this.storage = options.state === "none" ? null : new MemoryStorage();
    this.remote = options.remote ?? false;
  }

  async start(): Promise<void> {
    const { remote, access, limits } = this;
    const clock = withWallOffset(this.clock, () => this.serverClockOffsetMs);
    const storage = this.storage?.openForRun() ?? null;
    const log = (message: string, error?: unknown): void => {
      this.logLines.push(`${message} ${error}`);
    };
    // every process here has our pid; which one is meant stands in its start time
    const probe = (_pid: number, pidStart: string): ProcessState => this.#processStates.get(pidStart)?.() ?? "running";
    this.parts = await composeServer({
      clock,
      log,
      runId: `start${++this.startCount}`,
      storage,
      firstStart: false,
      commandRuns: this.commandRuns,
      access,
      limits,
      remote,
      sessionMs: 30_000,
      probe,
      runDirectory: null,
    });
  }

  get service(): LockService | null {
    return this.parts?.service ?? null;
  }

  /** What the server keeps now; it must be running. */
  inspect(): ServerInspection {
    const { backend: anyBackend, sessions } = this.parts as ServerParts;
    const backend = anyBackend as LocalBackend;
    return {
      backend,
      table: backend.table,
      records: backend.table.records,
      sessions: sessions.byId,
      isRecovering: backend.recoveryWindow.isActive,
      recoveryRemainingMs: backend.recoveryRemainingMs(),
      recoveryReason: backend.recoveryWindow.reason,
    };
  }

  /** The server's process is gone from one moment to the next. */
  crash(): void {
    this.storage?.loseUnwritten();
    this.parts = null;
    this.#endAllConnections();
  }

  /** A clean shutdown. */
  async stop(): Promise<void> {
    this.service?.drain();
    await flushEventLoop(2);
    await this.parts?.closeBackend();
    this.crash();
  }

  /** The driver of a process that the test stops and continues. It is not open, and is on another machine than the server. */
  createDriver(program: StoppableProcess): Driver {
    const client = {
      ...{ pipes: new Set<TestConnection>(), sessionId: "", isUnreachable: false, dropsTraffic: false },
      ...{ linesSent: 0, processState: "running" as const },
      dials: 0,
    };
    const connector = program.wrapConnector(this.#createConnect(client, false));
    return lockServer({ connector, clock: program.clock, random: () => 0.5 });
  }

  async connectClient(local = true, credential?: string): Promise<HarnessClient> {
    const connections = new Set<TestConnection>();
    const client: Omit<HarnessClient, "driver"> & { driver?: Driver; pipes: Set<TestConnection> } = {
      pushes: [],
      recalls: [],
      sessionId: "",
      processState: "running",
      isUnreachable: false,
      dropsTraffic: false,
      linesSent: 0,
      dials: 0,
      pipes: connections,
      disconnect: () => {
        for (const testConnection of connections) this.#endConnection(testConnection);
      },
    };
    const connector = this.#createConnect(client, local);
    const driver = lockServer({
      connector,
      clock: this.clock,
      random: () => 0.5,
      ...(credential !== undefined && { credential }),
    });
    client.driver = driver;
    const pendingOpen = driver.open({
      ...toDriverEvents((id, answer) => client.pushes.push({ id, answer })),
      recalled: (id) => void client.recalls.push(id),
    });
    await flushEventLoop();
    await pendingOpen;
    onCleanup(() => driver.close());
    return client as unknown as HarnessClient;
  }

  #createConnect(
    client: {
      pipes: Set<TestConnection>;
      sessionId: string;
      readonly isUnreachable: boolean;
      readonly dropsTraffic: boolean;
      linesSent: number;
      dials: number;
      readonly processState: ProcessState;
    },
    isLocal: boolean,
  ): Connector {
    const connect: Connector["connect"] = (events) => {
      client.dials++;
      const service = this.service;
      if (service === null || client.isUnreachable) {
        setImmediate(() => events.onClosed(new Error("nobody listens")));
        return { write: () => undefined, close: () => undefined, keepAlive: () => undefined };
      }
      const stream = {
        write: (text: string) => {
          setImmediate(() => {
            if (testConnection.isOpen && !client.dropsTraffic) events.onData(Buffer.from(text));
          });
        },
        close: () => {
          setImmediate(() => this.#endConnection(testConnection));
        },
      };
      const testConnection: TestConnection = {
        connection: service.accept(stream, { isLocal, address: isLocal ? "" : "127.0.0.1" }),
        events,
        client,
        isOpen: true,
      };
      this.#connections.add(testConnection);
      client.pipes.add(testConnection);
      return {
        write: (data) => {
          const text = String(data);
          client.linesSent++;
          // the hello tells which process it is; here each player is one
          const hello = /"session":"([a-z2-7]+)","pid":(\d+|null),"pidStart":("\d+"|null)/.exec(text);
          const line =
            hello === null ? text : text.replace(hello[3] as string, `"${processStartFor(hello[1] as string)}"`);
          if (hello !== null) {
            client.sessionId = hello[1] as string;
            this.#processStates.set(processStartFor(client.sessionId), () => client.processState);
          }
          setImmediate(() => {
            if (testConnection.isOpen && this.service === service && !client.dropsTraffic)
              testConnection.connection.receive(line.trimEnd().split("\n"));
          });
        },
        close: () => {
          testConnection.isOpen = false;
          this.#connections.delete(testConnection);
          if (this.service === service) setImmediate(() => testConnection.connection.transportClosed());
        },
        keepAlive: () => undefined,
      };
    };
    return { url: "the server", connect };
  }

  #endConnection(testConnection: TestConnection): void {
    if (!testConnection.isOpen) return;
    testConnection.isOpen = false;
    this.#connections.delete(testConnection);
    testConnection.client.pipes.delete(testConnection);
    if (this.service !== null) testConnection.connection.transportClosed();
    setImmediate(() => testConnection.events.onClosed(new Error("cut")));
  }

  #endAllConnections(): void {
    for (const testConnection of [...this.#connections]) this.#endConnection(testConnection);
  }
}

/** A start time that stands for a session. */
function processStartFor(session: string): string {
  return String([...session].reduce((sum, char) => (sum * 31 + char.charCodeAt(0)) % 1_000_000_007, 7));
}

/** The store's answer about a claim. */
export async function claimState(client: HarnessClient, claim: Claim): Promise<Answer | undefined> {
  return (await client.driver.renew([claim]))[0];
}
