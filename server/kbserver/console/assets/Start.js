import{_ as e,f as t,s as n,x as r}from"./index.js";import{Y as i,_ as a,a as o,f as s,g as c,n as l}from"./connection.js";import{t as u}from"./steps.js";import{t as d}from"./jsx-runtime.js";var f=`% Access control: groups in groups, rights on folders, and bans that win.
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
`,p=`% A family: who descends from whom, and who is a cousin of whom.
parent(ann, bob). parent(ann, bea).
parent(bob, cleo). parent(bea, dan).
parent(dan, eve).

ancestor(?x, ?y) :- parent(?x, ?y).
ancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z).
sibling(?x, ?y) :- parent(?p, ?x), parent(?p, ?y), ?x != ?y.
cousin(?x, ?y) :- parent(?p, ?x), parent(?q, ?y), sibling(?p, ?q).
`,m=`% An agent's memory of its user: facts with the confidence of each, and rules that use them.
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
`,h={id:`family`,title:`A family`,description:`Parents, and rules for ancestors, siblings and cousins. The tour uses this example.`,text:p,goal:`ancestor(ann, ?who)`},g=[h,{id:`access`,title:`Access control`,description:`Groups in groups, rights on folders, and bans that win.`,text:f,goal:`may(max, ?right, ?thing)`},{id:`memory`,title:`An agent's memory`,description:`What an agent knows of its user, with confidence, and what follows from it.`,text:m,goal:`can_suggest(?dish, kim)`}],_=d();function v(){let{connection:d,client:f}=l(),[,p]=c(),[m]=a(),v=i(),y=r({mutationFn:async({example:e})=>o(f.POST(`/teach`,{body:{text:e.text,scope:d.scope},params:{},parseAs:`text`})),onSuccess:async(e,{target:t})=>{await v.invalidateQueries(),p(t)}}),b=t(),[x]=u,S=x===void 0?``:e(x.screen,m,{...x.parameters,tour:`1`});return(0,_.jsxs)(_.Fragment,{children:[(0,_.jsx)(`h1`,{children:`Examples`}),(0,_.jsxs)(`p`,{children:[`Load an example into tenant `,(0,_.jsx)(`code`,{children:d.tenant}),`, or go to the `,(0,_.jsx)(s,{href:e(`playground`,m),children:`playground`}),`.`]}),y.error!==null&&(0,_.jsx)(n,{error:y.error,text:y.variables?.example.text??``}),(0,_.jsxs)(`section`,{className:`card tour-offer`,"aria-labelledby":`tour-offer-heading`,children:[(0,_.jsx)(`h2`,{id:`tour-offer-heading`,children:`A tour of five steps`}),(0,_.jsxs)(`p`,{children:[`It loads the family example and shows: `,u.map(({title:e})=>e.toLowerCase()).join(`, `),`.`]}),(0,_.jsx)(`p`,{className:`toolbar`,children:(0,_.jsx)(`button`,{type:`button`,className:`primary`,disabled:y.isPending||!b,onClick:()=>y.mutate({example:h,target:S}),children:`Take the tour`})})]}),(0,_.jsx)(`div`,{className:`examples`,children:g.map(t=>(0,_.jsxs)(`section`,{className:`card`,"aria-labelledby":`example-${t.id}`,children:[(0,_.jsx)(`h2`,{id:`example-${t.id}`,children:t.title}),(0,_.jsx)(`p`,{children:t.description}),(0,_.jsxs)(`details`,{children:[(0,_.jsx)(`summary`,{children:`Its facts and rules`}),(0,_.jsx)(`pre`,{tabIndex:0,"aria-label":`Facts and rules: ${t.title}`,children:t.text})]}),(0,_.jsx)(`p`,{className:`toolbar`,children:(0,_.jsxs)(`button`,{type:`button`,disabled:y.isPending||!b,onClick:()=>y.mutate({example:t,target:e(`playground`,m,{goal:t.goal})}),children:[`Load: `,t.title]})})]},t.id))})]})}export{v as default};