/** What the dialects of database servers have in common. */

import { toOpenError } from "./database-error.ts";
import type { Dialect, DialectEvents, DialectSession } from "./dialect.ts";

interface ServerSession extends DialectSession {
  /** Verifies the server, and creates what is missing. @throws StoreRefusedError if it cannot keep locks */
  prepare(): Promise<void>;
}

/**
 * @param createSession opens no connection
 * @param explainError explains an error of the database
 */
export function createServerDialect(
  name: string,
  createSession: (events: DialectEvents) => Promise<ServerSession>,
  explainError: (error: unknown) => unknown,
): Dialect {
  return {
    name,
    durability: "restart",
    async open(events) {
      const session = await createSession(events);
      try {
        await session.prepare();
      } catch (error) {
        await session.close();
        throw toOpenError(explainError(error));
      }
      return session;
    },
  };
}
