// What the tests use of pg, which has no types of its own.

declare module "pg" {
  import type { EventEmitter } from "node:events";

  interface QueryResult {
    readonly rows: readonly Readonly<Record<string, unknown>>[];
    readonly rowCount: number | null;
  }

  interface ClientOptions {
    readonly connectionString?: string;
    readonly application_name?: string;
    readonly statement_timeout?: number;
    readonly query_timeout?: number;
    readonly types?: object;
    readonly binary?: boolean;
  }

  interface PoolOptions extends ClientOptions {
    readonly max?: number;
    readonly idleTimeoutMillis?: number;
  }

  export class Client extends EventEmitter {
    constructor(options: string | ClientOptions);
    connect(): Promise<void>;
    query(text: string, values?: readonly unknown[]): Promise<QueryResult>;
    end(): Promise<void>;
  }

  export class Pool extends EventEmitter {
    constructor(options: PoolOptions);
    readonly totalCount: number;
    /** Those of the connections to come. */
    readonly options: { connectionString: string };
    connect(): Promise<Client & { release(): void }>;
    query(text: string, values?: readonly unknown[]): Promise<QueryResult>;
    end(): Promise<void>;
  }
}
