// The command line on MariaDB.

import { PASSWORD, testDatabaseCommands } from "../../support/database-commands.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

withMariaDb((server) => {
  testDatabaseCommands({
    server,
    createUser: async ({ name }) => {
      await server().query(`create user app identified by '${PASSWORD}'`);
      await server().query(`grant all on ${name}.* to app`);
    },
    refusedUrls: [
      { what: "unknown parameter", change: ["?", "?sslmode=on&"], code: 64, message: /has no parameter "sslmode"/ },
      { what: "no slashes", change: ["//", ""], code: 64, message: /url must have the form mysql:\/\/user:password@/ },
      { what: "wrong password", change: [PASSWORD, "wr0ng"], code: 77, message: /the server refuses the login/ },
      {
        what: "wrong port",
        change: [/:\d+\//, ":1/"],
        code: 69,
        message: /127\.0\.0\.1:1\/test_1\S* refused the connection/,
      },
      { what: "unknown database", change: ["/test_1", "/nowhere"], code: 77, message: /or it does not exist/ },
      { what: "no database", change: ["/test_1", "/"], code: 77, message: /name one in the url/ },
    ],
    doctor: [/^ok +version +MariaDB \d+/m, /^ok +role +the server accepts writes/m, /^ok +connections +\d+ of \d+/m],
  });
});
