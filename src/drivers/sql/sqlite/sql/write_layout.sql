/* write_layout.sql — notes the layout of new tables.
   Parameters: the version
   Cost: one row. */
insert into {layout} (only_row, version) values (1, ?) on conflict (only_row) do nothing
