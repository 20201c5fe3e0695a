import{t as e}from"./Dialog.js";import{t}from"./jsx-runtime.js";var n=`# Runbook: what to do when an alert fires

For operators on call: what each alert of \`docs/operations/alerts.yml\` means, and what to do. The screen *Operations* of the
[console](../how-to/use-the-console.md) shows the alerts that a node can see itself, each with its part of this page.

*Related searches: alert rules, on call, incident, Prometheus alerts, page.*

## KbcoreDown

The node does not answer.

- Look at its exit status and the last lines of its log: [each status has its own steps](when-it-fails.md).
- With followers, [promote one](replication.md) if the machine is lost.

## KbcoreNotWritable

The disk is full or the log failed. Reads go on; writes get 507.

- \`GET /health/ready\` names the reason in \`checks.storage\`.
- Full: free space, other files first. The server takes writes again within a second, without a restart ([the disk is full](when-it-fails.md#the-disk-is-full)).
- Failed: the server exits with 74; check the disk before you start it again.

## KbcoreInternalErrors

A request met a bug. Its answer has the code \`INTERNAL_ERROR\` and a request id.

- Find the request id in the log: the line has the error.
- Report it with the request. Other requests are not affected.

## KbcoreSlowSync

The disk is slow: one sync in a hundred takes over 250 ms, and every durable write waits for it.

- Look for other programs that write to the same disk, and for a disk that fails.
- Move the storage folder to a faster disk. \`FSYNC_POLICY\` says what is lost otherwise.

## KbcoreWritesWait

More writes come than the disk takes.

- Store many facts with one request: they share a sync.
- See KbcoreSlowSync.

## KbcoreGoalsWait

Long goals wait for each other.

- *Slow goals* in the console, or \`GET /goals/slow\`, names them; their plan shows why they are slow.
- Lower \`timeoutMs\` of the requests, or add followers that answer reads.

## KbcoreBudgetsExceeded

Goals end at a limit before they have all answers.

- The label \`limit\` says which. A goal that recurses without an end meets it at any value: change its rules first.
- Otherwise raise the limit in the request, or in the settings of the node.

## KbcoreSnapshotsFail

Snapshots fail: the log grows, and the next start takes longer.

- The log has the reason, mostly a full disk.
- Take one by hand when the reason is gone: *Take a snapshot* in the console, or \`POST /admin/snapshot\`.

## KbcorePluginFails

A plugin raises in the hook that the label names. Clients do not notice; what the plugin does is missing.

- The log has the exception. Update the plugin or remove it.

## KbcoreModelFails

The language model does not answer, or refuses.

- Look at the state of its provider, and at the key and the quota.
- Facts that were to be read from messages are missing: send the messages again later.

## KbcoreFollowerLags

The follower answers from an older state.

- Check the network and the processor of the follower.
- Writes at the leader may be more than the follower applies: see KbcoreWritesWait there.

## KbcoreFollowerDisconnected

The follower has not heard of its leader for a minute.

- Check that the leader runs and that the follower reaches its address.
- If the leader is lost, [promote the follower](replication.md).

## KbcoreFollowerFallsBack

A follower lacks over 100,000 records, so that it may have to fetch the whole state.

- See KbcoreFollowerLags. If the follower was removed for good, forget it at the leader.

## KbcoreDiverged

The log of the follower is not that of its leader: two nodes took writes.

- Empty nothing. Find out which node wrote, and which records only one of them has.
- Then keep the log that is right, and let the other node fetch the state from it.

## KbcoreFollowersBeginAnew

A follower fetches the whole state again and again: its leader keeps too little of the log for it.

- Let the leader keep more of its log, or the follower reconnect sooner.

## KbcoreNoFollowerInSync

With \`REPLICATION_SYNC\` no follower has every write: writes are refused.

- Start the followers, or check the network between the nodes.

## KbcoreLeaderChanges

The leader changes again and again.

- Check the coordinator and the network to it; a node that is paused or overloaded loses its lease.

## KbcoreShardsWithoutNode

Shards have no node: requests of their tenants get 503.

- Wait for half a minute after the end of a node: others take its shards.
- Otherwise start a node, or undo drains: \`POST /admin/cluster/rebalance\`.

## KbcoreClusterNodeMissing

A node of the cluster is gone; others have taken its shards.

- Start it again, or another one.

## KbcoreShardsLost

The node lost shards: it was paused, overloaded, or could not reach PostgreSQL.

- Check the load of the machine, and the connection to PostgreSQL.

## KbcoreTornTail

The node began after a crash and dropped bytes at the end of its log that were never acknowledged. No acknowledged write is lost.

- Find out why it crashed. The alert ends with the next start.

## KbcoreSnapshotDamaged

A damaged snapshot was found at the start. An older one and the log replaced it: nothing is lost.

- Check the disk. \`kbcore fsck\` shows what else is damaged.
- Take a snapshot, and a backup.

## KbcoreClockStepsBack

The clock of the machine went back by more than five seconds. Logged times stand still until it has caught up.

- Check the time service of the machine.
`;function r(e,t=n){let r=t.split(/^## /m).find(t=>t.startsWith(`${e}\n`));if(r===void 0)return null;let a=r.slice(e.length).split(/\n{2,}/).map(e=>e.trim()).filter(e=>e!==``),o=e=>e.startsWith(`- `);return{meaning:i(a.filter(e=>!o(e)).join(` `)),steps:a.filter(o).flatMap(e=>e.replace(/^- /,``).split(/\n- /)).map(i)}}function i(e){return e.replace(/\s+/g,` `).replace(/\[([^\]]+)\]\([^)]+\)/g,`$1`)}var a=t();function o({name:t,onClose:n}){let i=r(t);return(0,a.jsxs)(e,{title:t,onClose:n,children:[i===null?(0,a.jsx)(`p`,{children:`The runbook has nothing about this alert.`}):(0,a.jsxs)(a.Fragment,{children:[(0,a.jsx)(`p`,{children:(0,a.jsx)(s,{text:i.meaning})}),(0,a.jsx)(`ul`,{children:i.steps.map(e=>(0,a.jsx)(`li`,{children:(0,a.jsx)(s,{text:e})},e))})]}),(0,a.jsxs)(`p`,{className:`soft`,children:[`From `,(0,a.jsx)(`code`,{children:`docs/operations/runbook.md`}),`, the runbook of the documentation.`]}),(0,a.jsx)(`p`,{className:`toolbar`,children:(0,a.jsx)(`button`,{type:`button`,onClick:n,"data-focused":!0,children:`Close`})})]})}function s({text:e}){return(0,a.jsx)(a.Fragment,{children:e.split("`").map((e,t)=>t%2==1?(0,a.jsx)(`code`,{children:e},t):e.replaceAll(`*`,``))})}export{o as default};