// The command line on PostgreSQL.

import { PASSWORD, testDatabaseCommands } from "../../support/database-commands.ts";
import { withPostgres } from "../../support/stores/sql-fixture.ts";

withPostgres((server) => {
  testDatabaseCommands({
    server,
    createUser: ({ name }) =>
      server().query(`create role app login password '${PASSWORD}'; grant all on database ${name} to app`),
    refusedUrls: [
      { what: "unknown parameter", change: ["?", "?sslmod=on&"], code: 64, message: /has no parameter "sslmod"/ },
      {
        what: "no slashes",
        change: ["//", ""],
        code: 64,
        message: /url must have the form postgres:\/\/user:password@/,
      },
      { what: "wrong password", change: [PASSWORD, "wr0ng"], code: 77, message: /the server refuses the login/ },
      {
        what: "wrong port",
        change: [/:\d+\//, ":1/"],
        code: 69,
        message: /127\.0\.0\.1:1\/test_1\S* refused the connection/,
      },
      { what: "unknown database", change: ["/test_1", "/nowhere"], code: 77, message: /the database does not exist/ },
      { what: "no TLS there", change: ["?", "?ssl=true&"], code: 77, message: /the server does not support TLS/ },
    ],
    doctor: [
      /^ok +version +PostgreSQL \d+/m,
      /^ok +role +primary/m,
      /^ok +isolation /m,
      /^ok +connections +\d+ of \d+/m,
    ],
  });
});
