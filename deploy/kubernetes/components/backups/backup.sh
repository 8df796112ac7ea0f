#!/bin/sh
# One backup, in the order of docs/backup.md: the database, the files of the data folder, and last the log of charges.
# Files never change under a name, so those that the backup before has are linked to it and take no room twice.
set -eu
umask 077

if [ ! -d "$BACKUP_DATA" ] || [ ! -f "$BACKUP_LEDGER_LOG" ]; then
    echo "There is no $BACKUP_DATA or no $BACKUP_LEDGER_LOG: is the service running?" >&2
    exit 1
fi

list_backups() { ls -1 "$BACKUP_TO" | grep '^20.*Z$' || true; }

last=$BACKUP_TO/$(list_backups | sort | tail -n 1)
unfinished=$BACKUP_TO/unfinished
rm -rf "$unfinished"
mkdir -p "$unfinished/data"

# Where and as whom: the service file that PGSERVICEFILE names, so that no list of processes shows a password.
pg_dump --format=custom --no-password --file="$unfinished/database.dump"

cd "$BACKUP_DATA"
for folder in datasets artifacts; do
    # Names that begin with a dot are of files that are still being written.
    [ ! -d "$folder" ] || find "$folder" -name '.*' -prune -o -type f -print
done >"$unfinished/files.txt"
while IFS= read -r name; do
    mkdir -p "$unfinished/data/$(dirname "$name")"
    if [ "$(stat -c %s "$last/data/$name" 2>/dev/null)" = "$(stat -c %s "$name" 2>/dev/null)" ] &&
        ln "$last/data/$name" "$unfinished/data/$name" 2>/dev/null; then
        continue
    fi
    # Somebody may delete a data set meanwhile.
    cp -p "$name" "$unfinished/data/$name" || [ ! -e "$name" ]
done <"$unfinished/files.txt"
sync
mv -T "$unfinished" "$BACKUP_TO/$(date -u +%Y-%m-%dT%H-%M-%SZ)"

list_backups | sort -r | tail -n +"$((BACKUP_KEEP + 1))" | while IFS= read -r old; do
    rm -rf "${BACKUP_TO:?}/$old"
done

copy=$BACKUP_LEDGER_TO/ledger.log
if [ -f "$copy" ] && ! head -c "$(stat -c %s "$copy")" "$BACKUP_LEDGER_LOG" | cmp -s - "$copy"; then
    echo "The log of charges does not begin with its last copy, which is left as it is: see Restore in docs/backup.md." >&2
    exit 1
fi
cp "$BACKUP_LEDGER_LOG" "$copy.unfinished"
sync
mv "$copy.unfinished" "$copy"
