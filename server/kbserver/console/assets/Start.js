import{t as e}from"./useMutation.js";import{Z as t,_ as n,i as r,l as i,p as a,r as o,t as s,v as c}from"./ErrorMessage.js";import{t as l}from"./steps.js";import{t as u}from"./jsx-runtime.js";var d=`% Access control: groups in groups, rights on folders, and bans that win.
member(lea, editors). member(max, staff). member(editors, staff).
inside(report, projects). inside(budget, finance). inside(finance, projects).
grant(staff, read, projects). grant(editors, write, projects).
banned(max, budget).

belongs(?who, ?group) :- member(?who, ?group).
belongs(?who, ?group) :- member(?who, ?inner), belongs(?inner, ?group).
under(?thing, ?folder) :- inside(?thing, ?folder).
under(?thing, ?folder) :- inside(?thing, ?inner), under(?inner, ?folder).
may(?who, ?right, ?thing) :-
    belongs(?who, ?group),
    grant(?group, ?right, ?folder),
    under(?thing, ?folder),
    not banned(?who, ?thing).
`,f=`% A family: who descends from whom, and who is a cousin of whom.
parent(ann, bob). parent(ann, bea).
parent(bob, cleo). parent(bea, dan).
parent(dan, eve).

ancestor(?x, ?y) :- parent(?x, ?y).
ancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z).
sibling(?x, ?y) :- parent(?p, ?x), parent(?p, ?y), ?x != ?y.
cousin(?x, ?y) :- parent(?p, ?x), parent(?q, ?y), sibling(?p, ?q).
`,p=`% An agent's memory of its user: facts with the confidence of each, and rules that use them.
user(kim).
prefers(kim, "green tea") [confidence=0.9].
prefers(kim, "window seat") [confidence=0.6].
allergic(kim, peanuts) [confidence=0.95].
has_ingredient("pad thai", peanuts). has_ingredient("tomato soup", basil).
dish("pad thai"). dish("tomato soup").
lives_in(kim, lisbon) [confidence=0.8].
uses_time_zone(lisbon, "Europe/Lisbon").

unsafe_for(?dish, ?who) :- has_ingredient(?dish, ?what), allergic(?who, ?what).
can_suggest(?dish, ?who) :- dish(?dish), user(?who), not unsafe_for(?dish, ?who).
time_zone(?who, ?zone) :- lives_in(?who, ?city), uses_time_zone(?city, ?zone).
`,m={id:`family`,title:`A family`,description:`Parents, and rules for ancestors, siblings and cousins. The tour uses this example.`,text:f,goal:`ancestor(ann, ?who)`},h=[m,{id:`access`,title:`Access control`,description:`Groups in groups, rights on folders, and bans that win.`,text:d,goal:`may(max, ?right, ?thing)`},{id:`memory`,title:`An agent's memory`,description:`What an agent knows of its user, with confidence, and what follows from it.`,text:p,goal:`can_suggest(?dish, kim)`}],g=u();function _(){let{connection:u,client:d}=o(),[,f]=n(),[p]=c(),_=t(),v=e({mutationFn:async({example:e})=>i(d.POST(`/teach`,{body:{text:e.text,scope:u.scope},params:{},parseAs:`text`})),onSuccess:async(e,{target:t})=>{await _.invalidateQueries(),f(t)}}),[y]=l,b=y===void 0?``:r(y.screen,p,{...y.parameters,tour:`1`});return(0,g.jsxs)(g.Fragment,{children:[(0,g.jsx)(`h1`,{children:`Start`}),(0,g.jsxs)(`p`,{children:[`Load an example into tenant `,(0,g.jsx)(`code`,{children:u.tenant}),`, or go to the `,(0,g.jsx)(a,{href:r(`playground`,p),children:`playground`}),`.`]}),v.error!==null&&(0,g.jsx)(s,{error:v.error,text:v.variables?.example.text??``}),(0,g.jsxs)(`section`,{className:`card tour-offer`,"aria-labelledby":`tour-offer-heading`,children:[(0,g.jsx)(`h2`,{id:`tour-offer-heading`,children:`A tour of five steps`}),(0,g.jsxs)(`p`,{children:[`It loads the family example and shows: `,l.map(({title:e})=>e.toLowerCase()).join(`, `),`.`]}),(0,g.jsx)(`p`,{className:`toolbar`,children:(0,g.jsx)(`button`,{type:`button`,className:`primary`,disabled:v.isPending,onClick:()=>v.mutate({example:m,target:b}),children:`Take the tour`})})]}),(0,g.jsx)(`div`,{className:`examples`,children:h.map(e=>(0,g.jsxs)(`section`,{className:`card`,"aria-labelledby":`example-${e.id}`,children:[(0,g.jsx)(`h2`,{id:`example-${e.id}`,children:e.title}),(0,g.jsx)(`p`,{children:e.description}),(0,g.jsxs)(`details`,{children:[(0,g.jsx)(`summary`,{children:`Its facts and rules`}),(0,g.jsx)(`pre`,{tabIndex:0,"aria-label":`Facts and rules: ${e.title}`,children:e.text})]}),(0,g.jsx)(`p`,{className:`toolbar`,children:(0,g.jsxs)(`button`,{type:`button`,disabled:v.isPending,onClick:()=>v.mutate({example:e,target:r(`playground`,p,{goal:e.goal})}),children:[`Load: `,e.title]})})]},e.id))})]})}export{_ as default};