#!/bin/sh
# What a shell can do with the REST face: session.sh URL TOKEN FOLDER
# Leaves NAME.status, NAME.head and NAME.body of each step in FOLDER; test_rest_curl.py judges them.
set -eu
api=$1/api/v1
token=$2
folder=$3
json='content-type: application/json'

step() {
    name=$1
    shift
    curl --silent --show-error --max-time 20 --header "authorization: Bearer $token" \
        --output "$folder/$name.body" --dump-header "$folder/$name.head" --write-out '%{http_code}' "$@" \
        >"$folder/$name.status"
}

# A value goes in, comes out with its version, and is only replaced by who knows that version.
step write --request PUT "$api/store/values/topic" --header "$json" --data '{"value": {"name": "news", "ü": [1, 2.5]}}'
step read "$api/store/values/topic"
tag=$(grep -i '^etag:' "$folder/read.head" | tr -d '\r' | cut -d ' ' -f 2)
step unchanged "$api/store/values/topic" --header "if-none-match: $tag"
step replace --request PUT "$api/store/values/topic" --header "$json" --header "if-match: $tag" --data '{"value": 2}'
step late --request PUT "$api/store/values/topic" --header "$json" --header "if-match: $tag" --data '{"value": 3}'

# What goes wrong is told as a problem.
step absent "$api/store/values/nothing"
step elsewhere "$api/store/values/other%3Ashared%3Asecret"
token=smt_wrong
step stranger "$api/store/values/topic"
token=$2

# A task is put once, however often the request is sent.
for name in task again; do
    step "$name" "$api/queues/mail/tasks" --header "$json" --header 'idempotency-key: mail-1' --data '{"payload": "hello"}'
done

# The feed is followed, left, and gone on with: nothing is missed. curl ends with 28 when its time is over.
follow() {
    name=$1
    shift
    curl --silent --no-buffer --max-time 2 --header "authorization: Bearer $token" "$@" >"$folder/$name.body" || test $? = 28
}
follow first "$api/changes?since=0"
last=$(sed -n 's/^id: *//p' "$folder/first.body" | tail -n 1)
step meanwhile --request PUT "$api/store/values/meanwhile" --header "$json" --data '{"value": 1}'
follow resumed "$api/changes" --header "last-event-id: $last"

# The whole namespace goes out as a file, and in again.
step export "$api/namespace/export"
step import "$api/namespace/import" --header 'content-type: application/zstd' --data-binary "@$folder/export.body"
