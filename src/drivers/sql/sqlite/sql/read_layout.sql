/* read_layout.sql — the layout of the tables: at most one row. Fails if there are no tables.
   Cost: one row. */
select version from {layout}
