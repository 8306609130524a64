import{B as s,C as a,m as e,v as t}from"./screens.js";import"./shared.js";export{e as attention,t as decode,s as step,a as training};
