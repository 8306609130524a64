import{m as s,t as a,u as t,v as e}from"./screens.js";import"./shared.js";export{s as attention,a as decode,t as step,e as training};
