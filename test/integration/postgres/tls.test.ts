// TLS: which parameters of a url verify the server, with both libraries; and the command line.

import { readFileSync } from "node:fs";
import postgresJs from "postgres";
import { expect, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import { postgres } from "../../../src/drivers/sql/postgres/driver.ts";
import { explainError } from "../../../src/drivers/sql/postgres/errors.ts";
import { createLocks } from "../../../src/index.ts";
import { cliSandbox } from "../../support/cli-sandbox.ts";
import { expectSilentLoginsGivenUp, query } from "../../support/stores/sql-client-tests.ts";
import type { DatabaseServer } from "../../support/stores/sql-database.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";
import { createTlsFiles } from "../../support/stores/tls-files.ts";
import { openPostgresJsUrl } from "../../support/stores/url-clients.ts";

const files = createTlsFiles();
const sandbox = cliSandbox();
const settings = { ssl: "on", ssl_cert_file: files.server.cert, ssl_key_file: files.server.key };
const UNKNOWN_ISSUER =
  /^postgres: the certificate of the server is signed by an unknown issuer: .*sslrootcert in the url/;
const OTHER_NAME = /^postgres: the certificate of the server is for another name/;

/** Whether the connection of a url is encrypted, or the explained error. */
async function tryPostgresJs({ url }: DatabaseServer, host: string, ca: string): Promise<unknown> {
  const client = openPostgresJsUrl(`${url.replace("127.0.0.1", host)}?sslrootcert=${ca}`);
  try {
    return (await query(client, "select ssl from pg_stat_ssl where pid = pg_backend_pid()")).rows[0];
  } catch (error) {
    return (explainError(error) as Error).message;
  } finally {
    await client.close();
  }
}

withPostgres(
  (server) => {
    const urlOf = (query: string, host = "localhost"): string =>
      `${server().url.replace("127.0.0.1", host)}?${query}&silenceWarnings=durability`;

    test.each(["localhost", "127.0.0.1"])(
      "a server that is named %s is verified by its issuer and its name",
      async (host) => {
        const locks = await connect(urlOf(`sslmode=verify-full&sslrootcert=${files.server.ca}`, host));
        const [row] = await server().query(
          "select count(*)::int as plain from pg_stat_ssl join pg_stat_activity using (pid) where not ssl and application_name = 'holdfast'",
        );
        expect(row).toEqual({ plain: 0 });
        await locks.close();
      },
    );

    test.each(["sslmode=require", "ssl=true", `sslmode=verify-ca&sslrootcert=${files.wrongCa}`])(
      "%s refuses a server of an unknown issuer, before the login",
      async (query) => {
        await expect(connect(urlOf(query))).rejects.toMatchObject({
          code: "LOCK_STORE_REFUSED",
          message: expect.stringMatching(UNKNOWN_ISSUER),
        });
      },
    );

    test("sslmode=no-verify encrypts, and verifies nothing", async () => {
      await (await connect(urlOf("sslmode=no-verify"))).close();
    });

    test("postgres.js: a client with the wrong issuer is refused, and one with the right one is not", async () => {
      const open = (ca: string) => {
        const ssl = { ca: readFileSync(ca, "utf8") };
        const sql = () => postgresJs(server().url, { ssl, max: 2, onnotice: () => undefined });
        return createLocks(postgres(sql, { silenceWarnings: ["durability"] }));
      };
      const [right, wrong] = [open(files.server.ca), open(files.wrongCa)];
      await (await right.acquire("k")).release();
      await expect(wrong.acquire("k")).rejects.toThrow(UNKNOWN_ISSUER);
      await Promise.all([right.close(), wrong.close()]);
    });

    test("a url, by postgres.js: the issuer and the name are verified; a silent server is given up", async () => {
      for (const host of ["localhost", "127.0.0.1"]) {
        expect(await tryPostgresJs(server(), host, files.server.ca)).toEqual({ ssl: true });
        expect(await tryPostgresJs(server(), host, files.wrongCa)).toMatch(UNKNOWN_ISSUER);
      }
      // of TLS the handshake is the second message
      await expectSilentLoginsGivenUp(server().port, [0, 1, 2], (port) => {
        const url = server().url.replace(`:${server().port}`, `:${port}`);
        return openPostgresJsUrl(`${url}?sslrootcert=${files.server.ca}`, { connectTimeoutMs: 300 });
      });
    });

    test("the command line: runs with the right issuer; with another one nothing runs", async () => {
      const run = (ca: string) => {
        const env = { HOLDFAST_URL: urlOf(`sslmode=verify-full&sslrootcert=${ca}&silenceWarnings=durability`) };
        return sandbox.run(["run", "k", "--", "echo", "ran"], { env });
      };
      expect(await run(files.server.ca)).toMatchObject({ code: 0, out: "ran\n", err: "" });
      expect(await run(files.wrongCa)).toMatchObject({
        code: 77,
        out: "",
        err: expect.stringMatching(
          /^holdfast: postgres: the certificate of the server is signed .*; nothing was run\n$/,
        ),
      });
    });
  },
  { settings },
);

withPostgres(
  (server) => {
    test("a certificate for another name is refused, also for a server that is named by its address", async () => {
      for (const host of ["localhost", "127.0.0.1"]) {
        const url = `${server().url.replace("127.0.0.1", host)}?sslrootcert=${files.otherServer.ca}`;
        await expect(connect(url)).rejects.toThrow(OTHER_NAME);
        expect(await tryPostgresJs(server(), host, files.otherServer.ca)).toMatch(OTHER_NAME);
      }
    });
  },
  { settings: { ...settings, ssl_cert_file: files.otherServer.cert, ssl_key_file: files.otherServer.key } },
);
