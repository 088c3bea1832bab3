/** What tests see of a database server, whichever it is. */

import { rmSync } from "node:fs";
import type { DatabaseProcess } from "../../../src/torture/processes/database-process.ts";

/** The columns by name. Large integers are text. */
type DatabaseRow = Readonly<Record<string, unknown>>;

/** A database of a server, for one test or one file. */
export interface TestDatabase {
  readonly name: string;
  /** For its administrator. */
  readonly url: string;
  /** The same database for another user. */
  urlOf(user: string, password: string): string;
  /** Runs a statement as the administrator, over a connection of its own, which is closed afterwards. */
  query(text: string, values?: readonly unknown[]): Promise<readonly DatabaseRow[]>;
  /** Removes it, and ends the connections to it. */
  drop(): Promise<void>;
}

export interface DatabaseServer extends DatabaseProcess {
  readonly port: number;
  /** The data and the log. */
  readonly folder: string;
  /** The administrator's url, to a database that is always there. */
  readonly url: string;
  /** As TestDatabase.query, in the database that is always there. */
  query(text: string, values?: readonly unknown[]): Promise<readonly DatabaseRow[]>;
  /** An empty database, for this server's life. */
  freshDatabase(): Promise<TestDatabase>;
  /** Ends it in order and starts it again with its data. */
  restart(): Promise<void>;
  /** Ends it and removes its data. @throws Error if its log contains a fault: a deadlock, a crash of the server itself */
  dispose(): Promise<void>;
}

export interface ServerOptions {
  /** Each commit is synced to the disk, as servers do by default. Default false: a crash of the process loses nothing. */
  readonly isSynced?: boolean;
  /** Settings by name, as in the server's configuration file. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Further variables of its environment. */
  readonly environment?: Readonly<Record<string, string>>;
}

interface RunningServer extends Pick<DatabaseServer, "port" | "folder" | "url"> {
  readonly process: DatabaseProcess;
  /** "PostgreSQL": for messages. */
  readonly name: string;
  query(url: string, text: string, values?: readonly unknown[]): Promise<readonly DatabaseRow[]>;
  createDatabase(name: string): Promise<TestDatabase>;
}

/** A server from its process, which has been started. */
export function createDatabaseServer(running: RunningServer): DatabaseServer {
  const { process, name, port, folder, url, query, createDatabase } = running;
  let databases = 0;
  return {
    ...process,
    get pid() {
      return process.pid;
    },
    port,
    folder,
    url,
    query: (text, values) => query(url, text, values),
    freshDatabase: () => createDatabase(`test_${++databases}`),
    async restart() {
      await process.stop();
      await process.start();
    },
    async dispose() {
      await process.crash();
      const faults = process.loggedFaults();
      rmSync(folder, { recursive: true, force: true });
      if (faults.length > 0) throw new Error(`the log of ${name}:\n  ${faults.join("\n  ")}`);
    },
  };
}
